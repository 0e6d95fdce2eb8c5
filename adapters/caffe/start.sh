#!/bin/sh
# The environment's Python: that of the Debian packages, started by their own loader, for this machine may have another
# C library. Which build of OpenBLAS computes is a matter of the library path: DLBENCH_OPENBLAS is pthread or openmp.
unset CDPATH LD_LIBRARY_PATH LD_PRELOAD
tree=$(cd "${0%/*}/../debian" && pwd) || exit 127
machine=$tree/usr/lib/x86_64-linux-gnu
blas=$machine/openblas-${DLBENCH_OPENBLAS:-pthread}
if [ ! -d "$blas" ]; then
    echo "DLBENCH_OPENBLAS is $DLBENCH_OPENBLAS: give pthread or openmp" >&2
    exit 127
fi
# Python finds its packages by the path it is started with.
exec "$tree/lib/x86_64-linux-gnu/ld-2.31.so" --library-path "$blas:$tree/lib/x86_64-linux-gnu:$machine:$tree/usr/lib" \
    "$tree/usr/bin/python3.9" "$@"
