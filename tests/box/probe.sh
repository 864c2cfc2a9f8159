#!/bin/bash
# the probe: each of its doors opens where it may, so that "refused" elsewhere means something
. "${TEST_LIB:?}/box.bash"
tiny_root || fail "no tiny root"

# nobody VERB...: the probe without any privilege.
nobody() { unshare -m -p -n -i -u --fork --mount-proc setpriv --reuid 20001 --regid 20001 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs probe "$@"; }

for row in "mount tmpfs $LAB/work" "fsopen tmpfs" "bind / $LAB/work" "umount /run" "mknod $LAB/work/n%s 1 3" \
	"open-write /proc/sys/kernel/core_pattern" "sysctl-write kernel.hostname" "sysctl-write kernel/panic" \
	"unshare mnt" "unshare net" "clone pid" "clone3 uts" "setns /proc/1/ns/net" "syslog" "settime-bad" \
	"reboot-badarg" "swapon" "nft" "socket packet raw 768" "socket inet raw 1" "setuid 12" "sethostname x" \
	"by-handle /" "loop-device" "make-shared /"; do
	t "$row: root gets through, nobody doesn't"
	# shellcheck disable=SC2046,SC2059,SC2086,SC2183
	if host_probe $(printf "$row" 1) >"$LAB/work/.row" 2>&1; then
		# shellcheck disable=SC2046,SC2059,SC2183
		allowed host_probe $(printf "$row" 2)
		# shellcheck disable=SC2046,SC2059,SC2183
		blocked nobody $(printf "$row" 3)
	else
		skip "not even root can here: $(head -n 1 "$LAB/work/.row")"
	fi
done

t "doors that every program has without a filter"
for verb in "keyctl" "userfaultfd user" "io_uring" "socket unix stream" "clone user" "unshare user" "perf"; do
	# shellcheck disable=SC2086
	call host_probe $verb
	[[ $STATUS == 0 ]] || note "not on this kernel: $verb ($OUT)"
done
allowed host_probe socket unix stream
allowed host_probe unshare user
allowed host_probe clone3 user

t "a chroot alone is left, a fresh root isn't"
allowed unshare -m chroot "$TINY" /bin/probe chroot-escape
blocked host_probe chroot-escape "$LAB/work/sub"

t "a marker is found in a file, a name, a link, an environment and a process's root"
marker=$(printf 'mark%s' "$RANDOM$RANDOM") hex=$(printf '%s' "$marker" | od -An -tx1 | tr -d ' \n')
mkdir "$LAB/hay"
blocked host_probe find-marker "$hex" "$LAB/hay"
echo "some $marker here" >"$LAB/hay/file"
want_out 'found in .*/file' host_probe find-marker "$hex" "$LAB/hay"
allowed host_probe find-marker "$hex" "$LAB/hay"
rm "$LAB/hay/file"
: >"$LAB/hay/x$marker"
want_out 'found as the name' host_probe find-marker "$hex" "$LAB/hay"
rm "$LAB/hay/x$marker"
ln -s "/$marker" "$LAB/hay/l"
want_out 'found in the link' host_probe find-marker "$hex" "$LAB/hay"
rm "$LAB/hay/l"
{ head -c 65534 /dev/zero; printf '%s' "$marker"; } >"$LAB/hay/across"
want_out 'found in .*/across' host_probe find-marker "$hex" "$LAB/hay"
rm "$LAB/hay/across"
cp "$BUILD/tests/probe/probe" "$TINY/bin/probe"
mkdir -p "$TINY/proc"
# shellcheck disable=SC2016
want_out 'found in /proc/[0-9]*/environ' unshare -m -p --fork --kill-child bash -c 'mount -t proc proc "$1/proc"
	HIDDEN=$2 chroot "$1" /bin/probe wait &
	for ((i = 0; i < 500; i++)); do grep -qsz ^HIDDEN= "$1/proc/$!/environ" && break; sleep 0.01; done
	exec chroot "$1" /bin/probe find-marker "$3"' bash "$TINY" "$marker" "$hex"
rm -rf "$LAB/hay"

t "the search doesn't find itself"
allowed true
blocked unshare -m -p --fork --kill-child chroot "$TINY" /bin/sh -c "mount -t proc proc /proc; exec /bin/probe find-marker $hex"

t "descriptors that a caller left open are listed, and none without"
want_out 'hay-bait' sh -c "mkdir -p $LAB/hay-bait; exec 7<$LAB/hay-bait; exec probe fds"
want_not_out 'hay-bait' probe fds

t "abstract sockets are seen and reached in their own network namespace, and only there"
probe abstract-listen hidden-socket 30 >"$LAB/work/.listen" &
listener=$!
want_soon 5 grep -q through "$LAB/work/.listen"
allowed probe abstract-sockets
allowed probe abstract-connect hidden-socket
blocked unshare -n probe abstract-sockets
blocked unshare -n probe abstract-connect hidden-socket
kill "$listener"
wait "$listener" 2>/dev/null

t "another process of the same user can be traced, one of somebody else can't"
allowed sh -c 'probe wait & p=$!; probe ptrace $p; s=$?; kill -9 $p; exit $s'
blocked as ann probe ptrace $$
allowed sh -c 'probe wait & p=$!; probe vm-readv $p; s=$?; kill -9 $p; exit $s'
blocked as ann probe vm-readv $$

t "a process may make itself likelier to be killed for memory, not less likely"
allowed as ann probe oom-adjust 500
blocked as ann probe oom-adjust -1000

t "limits: what is taken is counted"
want_out 'through: 10 children' probe fork 10
want_status 1 sh -c 'ulimit -n 20; exec probe hold-open 100'
want_out 'through: 5 orphans' probe zombies 5
want_out '^1048576$' sh -c 'probe pour 1M | probe drink'

t "an unknown verb or a missing argument is said, with status 2"
want_err 2 'usage' probe no-such-verb
want_err 2 'usage: probe mount' probe mount tmpfs
want_status 2 probe alloc ten
