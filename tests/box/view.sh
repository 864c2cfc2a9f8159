#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086,SC2016
# a project copied on write: what a box changes is the box's, until somebody looks at it and takes it over
# modes: root user userns
# seconds: 170
. "${TEST_LIB:?}/box.bash"
[[ $LAB_AS == root ]] && printf 'grants = ann, bob\n' >"$CUBBY_CONFIG"
need_template tiny
weak=
[[ $LAB_AS == root ]] || weak=--allow-weaker
W=$LAB/work
P=$W/proj
CALL_SECONDS=60
# tree DIR: everything of it, one line for each thing.
tree() { (cd "$1" && find . -printf '%p|%y|%l|%#m|%u|%T@\n' | LC_ALL=C sort && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); }
in_box() { local box=$1; shift; cubby exec --workdir "$P" "$box" -- "$@"; }

mkdir -p "$P/src/deep" "$P/empty"
echo one >"$P/a"
echo two >"$P/src/b"
echo '#!/bin/sh' >"$P/run" && chmod 755 "$P/run"
ln -s a "$P/link"
want_status 0 cubby new -q $weak --net none --template tiny --mount "$P:cow" c

t "the box reads the project, and what it changes reaches nobody else"
before=$(tree "$P")
want_out '^one$' in_box c cat a
want_out '^two$' in_box c cat src/b
want_status 0 in_box c sh -c 'echo more >>a; rm src/b; mkdir new; echo x >new/x; chmod 700 run; mv empty moved; ln -s /etc/passwd out'
want_out '^one more $' in_box c sh -c 'cat a | tr "\n" " "'
want_out '^x$' in_box c cat new/x
want_status 1 in_box c test -e src/b
want_out '^700$' in_box c stat -c %a run
want "$before" = "$(tree "$P")"
want_out 'copy on write' cubby info c

t "its own root may write there too, and no owner on the host comes of it"
want_status 0 cubby exec --user root --workdir "$P" c -- sh -c 'echo r >by-root; chmod 600 by-root'
want "$before" = "$(tree "$P")"

t "what was changed is there after a stop and a start"
want_status 0 cubby stop -q --force c
want_out '^one more $' in_box c sh -c 'cat a | tr "\n" " "'
want_status 1 in_box c test -e src/b

t "the host's changes are seen when the box starts, where the box changed nothing"
want_status 0 cubby stop -q --force c
echo host >"$P/src/late"
want_out '^host$' in_box c cat src/late

t "a throw-away box's changes go with it"
before=$(tree "$P")
want_out '^changed$' cubby run $weak --net none --template tiny --mount "$P:cow" -- sh -c 'echo changed >a; cat a'
want "$before" = "$(tree "$P")"

t "a file can't be copied on write, a place is still told from it"
want_err 2 'only a directory' cubby run $weak --net none --template tiny --mount "$P/a:cow" -- true
want_out '^one$' cubby run $weak --net none --template tiny --mount "$P:/at:cow" -- cat /at/a
