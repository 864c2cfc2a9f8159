#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086,SC2016
# commands on a terminal: shell and exec -t, Ctrl-C and Ctrl-Z, resized, killed, closed (CRSH-11)
# modes: root userns
# seconds: 120
. "${TEST_LIB:?}/box.bash"
need_template tiny
weak=
[[ $LAB_AS == root ]] || weak=--allow-weaker
want_status 0 cubby new -q $weak --template tiny box
onterm() { CALL_SECONDS=60 timeout -k 2 60 python3 "$TEST_LIB/onterm.py" "$@"; }
in_box() { timeout 10 cubby exec box -- sh -c "grep -qs '^$1' /proc/[0-9]*/cmdline" </dev/null; }
not_in_box() { ! in_box "$1"; }

t "the harness sees modes that stay changed"
want_out 'modes changed' onterm 'wait:go' -- sh -c 'stty raw; echo go'
want_out 'modes same' onterm 'wait:go' -- sh -c 'echo go'

t "a shell is one: it prompts, computes, and its status is passed on; the terminal is as before"
want_out 'status 3.*modes same' onterm 'type:echo $((6*7))-is-it\n' 'wait:\n42-is-it' 'type:exit 3\n' -- cubby shell box

t "a terminal is one in the box, of the same size, and follows when it is resized"
want_out 'status 0.*modes same' onterm size:33x77 'type:\n' 'wait:is-tty' 'wait:33 77' size:44x88 'type:\n' 'wait:44 88' -- \
	cubby exec -t box -- sh -c 'read x; test -t 0 && test -t 1 && echo is-tty; stty size; read x; stty size'

t "Ctrl-C ends what runs in the box, and not the shell there"
want_out 'status 130.*modes same' onterm wait:ready 'type:\x03' -- cubby exec -t box -- sh -c 'echo ready; exec sleep 50'
want_out 'status 0.*modes same' onterm 'type:echo rea""dy; sleep 51\n' wait:ready 'type:\x03' 'type:echo still-$((1+1))\n' wait:still-2 \
	'type:exit 0\n' -- cubby shell box
want_soon 4 not_in_box sleep.5

t "Ctrl-Z: in a shell of the box it stops the job there; a command without a shell goes on"
want_out 'status 0.*modes same' onterm 'type:sleep 52\n' still:0.5 'type:\x1a' wait:Stopped 'type:kill %1; echo go-$((1+1))\n' wait:go-2 \
	'type:exit\n' 'type:exit\n' -- cubby shell box
want_out 'status 0.*modes same' onterm wait:ready 'type:\x1a' still:0.5 'type:on\n' wait:got-on -- \
	cubby exec -t box -- sh -c 'echo ready; while ! read x; do :; done; echo "got-${x#?Z}"'

t "Ctrl-Z without a terminal in the box: the client stops, the command goes on, and nothing is lost"
want_out 'status 5.*modes same' onterm wait:ready 'type:\x1a' stopped "run:cubby exec box -- sh -c 'until test -e /tmp/on; do sleep 0.05; done'" cont \
	'wait:was-on' -- cubby exec -T -n box -- sh -c 'echo ready; sleep 0.3; echo on >/tmp/on; echo was-on; exit 5'

t "CRSH-11: killed, stopped, removed meanwhile: the modes of the terminal are restored, and the command ends"
for how in kill:TERM kill:HUP kill:INT; do
	want_out 'modes same' onterm wait:ready $how -- cubby exec -t box -- sh -c 'echo ready; exec sleep 53'
	want_soon 5 not_in_box sleep.53
done
want_out 'modes same' onterm wait:ready 'run:cubby stop --force box >/dev/null' -- cubby exec -t box -- sh -c 'echo ready; exec sleep 54'
want_status 0 cubby start box
want_status 0 cubby new -q $weak --template tiny other
want_out 'modes same' onterm wait:ready 'run:cubby rm --force other >/dev/null' -- cubby exec -t other -- sh -c 'echo ready; exec sleep 55'

t "CRSH-11: the terminal is closed: client and command end"
want_out 'status (129|137|1)' onterm wait:ready close -- cubby exec -t box -- sh -c 'echo ready; exec sleep 56'
want_soon 5 not_in_box sleep.56

t "CRSH-11: the client is killed hard: the command in the box ends all the same"
want_out 'status 137' onterm wait:ready kill:KILL -- cubby exec -t box -- sh -c 'echo ready; exec sleep 57'
want_soon 5 not_in_box sleep.57

t "CRSH-11: the daemon dies while a command has the terminal: it goes on"
want_out 'status 6.*modes same' onterm wait:ready "run:kill -9 $(daemon_pids)" 'type:\n' wait:on -- \
	cubby exec -t box -- sh -c 'echo ready; read x; echo on; exit 6'
want_status 0 cubby rm --force box
