#!/bin/sh
# Make DIR a view of the kernel's user-space headers alone: linux, asm, asm-generic (Debian: linux-libc-dev).
# Usage: kernel-headers.sh DIR ARCH
set -eu
dir=$1 arch=$2
mkdir -p "$dir"
for d in linux asm-generic mtd; do
	if [ -d "/usr/include/$d" ]; then ln -sfn "/usr/include/$d" "$dir/$d"; fi
done
for d in "/usr/include/$arch-linux-gnu/asm" /usr/include/asm; do
	if [ -d "$d" ]; then ln -sfn "$d" "$dir/asm"; break; fi
done
