#!/bin/bash
# the test library itself: its checks can fail, and leftovers are seen
# modes: root
. "${TEST_LIB:?}/box.bash"

# inner SCRIPT: the output of a test file with that text, in a lab of its own.
inner() {
	printf '. "%s/box.bash"\n%s\n' "$TEST_LIB" "$1" >"$LAB/work/inner.sh"
	lab --seconds "${2:-20}" --bind "$SRC:src" --bind "$BUILD:build" --bind "$LAB/work:inner" -- \
		env SRC="$SRC" BUILD="$BUILD" TEST_LIB="$TEST_LIB" bash "$LAB/work/inner.sh" 2>&1
	return 0
}

t "a check that holds passes, one that doesn't fails"
want_out '^ok - a' inner 't a; want_status 3 sh -c "exit 3"'
want_out 'not ok - a' inner 't a; want_status 3 sh -c "exit 4"'
want_out '^ok - a' inner 't a; want_out "^x$" echo x'
want_out 'not ok - a' inner 't a; want_out "^x$" echo xy'
want_out 'not ok - a' inner 't a; want_out "^x$" sh -c "echo x; exit 1"'
want_out 'not ok - a' inner 't a; want_err 2 "no such" sh -c "echo no luck >&2; exit 2"'
want_out 'not ok - a' inner 't a; want 1 = 2'

t "a case that checks nothing fails"
want_out 'checked nothing.not ok - a' inner 't a'

t "a later check that holds doesn't cover an earlier one that failed"
want_out 'not ok - a' inner 't a; want 1 = 2; want 1 = 1'

t "blocked needs an allowed beside it, and a refusal, not just any failure"
want_out 'not ok - a' inner 't a; blocked sh -c "echo refused EPERM; exit 1"'
want_out '^ok - a' inner 't a; allowed true; blocked sh -c "echo refused EPERM; exit 1"'
want_out 'not ok - a' inner 't a; allowed true; blocked sh -c "exit 1"'
want_out 'not ok - a' inner 't a; allowed true; blocked true'

t "a skip gives its reason, and CUBBY_MUST_RUN makes it a failure"
want_out 'skip - a: no reason' inner 't a; skip "no reason"'
want_out 'not ok - a' inner 'CUBBY_MUST_RUN=1; t a; skip "no reason"'

t "processes, mounts, cgroups and run files that stay are seen"
want_out 'ok - left nothing behind' inner 't a; want 1 = 1'
want_out 'left: process .* sleep 77.*not ok - left something' inner 't a; want 1 = 1; sleep 77 & disown'
want_out 'left: mount .*/x.*not ok - left something' inner 't a; want 1 = 1; mkdir $LAB/x; mount -t tmpfs none $LAB/x'
want_out 'left: .*/run/boxes/b.*not ok - left something' inner 't a; want 1 = 1; mkdir -p $LAB/run/boxes/b'
if [[ -d /sys/fs/cgroup/pids ]]; then
	want_out 'left: cgroup .*/x.*not ok - left something' inner 't a; want 1 = 1; mkdir /sys/fs/cgroup/pids/x'
fi

t "a test that hangs is ended"
want_out 'not ok - ends within 1 seconds' inner 'sleep 50' 1

t "a call that hangs is ended"
CALL_SECONDS=1 want_status 124 sleep 30

t "the lab has no network but loopback, and both users"
want_out '^lo$' sed -n 's/ *\([a-z0-9]*\):.*/\1/p' /proc/net/dev
want_out 'ann:x:20001' grep ann /etc/passwd
want_out '^20002$' as bob id -u
