#!/bin/bash
# install and uninstall: what was put there works, and nothing stays
# seconds: 300
. "${TEST_LIB:?}/box.bash"

[[ -w $SRC && $LAB_AS == root ]] || skip_file "installing needs root"
command -v meson >/dev/null || skip_file "no meson"
prefix=$LAB/prefix
mkdir -p "$LAB/copy"
tar -C "$SRC" --exclude='./build*' --exclude=./.git -cf - . | tar -C "$LAB/copy" -xf -

t "install below a prefix, and the program works from there"
CALL_SECONDS=200 want_status 0 "$LAB/copy/setup" install --prefix "$prefix"
want_out '^cubby' "$prefix/bin/cubby" version
want -f "$prefix/share/man/man1/cubby.1"
tiny_root
want_status 0 "$prefix/bin/cubby" template create tiny "dir:$TINY"
want_out '^hello$' "$prefix/bin/cubby" run --net none --template tiny -- /bin/echo hello
want_status 0 "$prefix/bin/cubby" new --net none --template tiny kept

t "uninstall refuses while there are boxes, and names them"
CALL_SECONDS=60 want_err 1 'kept' "$LAB/copy/setup" uninstall --prefix "$prefix"
want_out 'kept' "$prefix/bin/cubby" ls

t "uninstall --force removes everything, and looks"
CALL_SECONDS=60 want_out 'nothing is left$' "$LAB/copy/setup" uninstall --prefix "$prefix" --force
want_out '^$' find "$prefix" ! -type d
want ! -e "$CUBBY_STATE_DIR"
want_out '^$' daemon_pids

t "a leftover is seen"
mkdir -p "$prefix/bin"
: >"$prefix/bin/cubbyd"
want_status 1 "$LAB/copy/setup" uninstall --prefix "$prefix"
rm -f "$prefix/bin/cubbyd"
rm -rf "$LAB/copy"

t "wrong words are answered with what there is, and status 2"
want_err 2 'no command' "$SRC/setup" instal
want_err 2 'absolute' "$SRC/setup" install --prefix relative
