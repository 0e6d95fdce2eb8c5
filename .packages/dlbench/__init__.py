"""Which deep-learning framework, which build of it, on how many threads, is fastest here, and can I believe the number?"""
