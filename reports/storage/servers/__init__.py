"""What a store on a database server needs beyond a file: its URL, its errors in words, delivery, copies."""
