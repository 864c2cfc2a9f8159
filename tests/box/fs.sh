#!/bin/bash
# files and mounts: nothing of the host is in a box but what was asked for, and nothing of a box leads cubby astray outside
# modes: root user userns
# seconds: 170
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
[[ $LAB_AS == root ]] && printf 'grants = ann, bob\n' >"$CUBBY_CONFIG"
need_template tiny
W=$LAB/work
marker=host$RANDOM$RANDOM$RANDOM
mkdir -p "$W/proj/sub/deep" "$W/ro" "$W/secret"
echo "$marker" >"$W/secret/marker"
echo kept >"$W/ro/file"
mk b
mk p --mount "$W/proj" --mount "$W/ro:/ro:ro"
mk n --nesting --mount "$W/ro:/ro:ro"

t "FS-01 a file that only the host has is nowhere in a box"
allowed outside find-marker "$(hex "$marker")" "$W/secret"
for box in b p n; do
	blocked box_probe $box find-marker "$(hex "$marker")"
	blocked box_probe_user $box find-marker "$(hex "$marker")"
done
echo "$marker" >"$W/proj/planted"
allowed box_probe p find-marker "$(hex "$marker")"
rm "$W/proj/planted"

t "FS-02 above the project is the box's own skeleton, whichever way one climbs"
want_out 'secret' ls -A "$W/proj/.."
want_out '^proj $' in_box p sh -c "cd '$W/proj/..' && ls -A | tr '\n' ' '"
want_out '^proj $' in_box_user p sh -c "cd '$W/proj/sub' && cd -P ../.. && ls -A | tr '\n' ' '"
want_status 0 in_box_user p ln -s ../../../../../../../.. "$W/proj/up"
want_out '^/$' in_box p sh -c "cd '$W/proj' && cd -P up && pwd"
want_not_out "$marker" in_box p sh -c "cat $W/proj/up$W/secret/marker $W/proj/../secret/marker 2>/dev/null || :"
dir=$W
while [[ $dir != / ]]; do
	want "$(in_box p ls -A "$(dirname "$dir")" </dev/null | grep -cv -e "^$(basename "$dir")\$" -e '^[a-z]*$')" = 0
	dir=$(dirname "$dir")
done
rm "$W/proj/up"
if [[ $LAB_AS == user ]]; then control=(unshare -Ur chroot "$TINY"); else control=(unshare -m chroot "$TINY"); fi
allowed "${control[@]}" /bin/probe chroot-escape
blocked box_probe b chroot-escape
blocked box_probe_user b chroot-escape
blocked box_probe p chroot-escape "$W/proj/jail"

t "FS-03 links to the host's paths are the box's when cubby touches them, not the host's"
before=$(sums "$W/secret")
want_status 0 in_box b sh -c "mkdir -p /tmp/t; ln -s '$W/secret/marker' /tmp/t/file; ln -s '$W/secret' /tmp/t/dir; ln -s /proc/self/root /tmp/t/root
	ln -s '$W/secret/marker' /tmp/file; ln -s '$W/secret' /tmp/dir"
for path in /tmp/file /tmp/dir/marker /tmp/t/dir/marker; do
	rm -rf "$W/out"
	call cubby cp "b:$path" "$W/out"
	# A link is copied as a link, which is for its reader to follow.
	[[ -L $W/out ]] || want ! -e "$W/out"
done
echo new >"$W/new"
for path in /tmp/file /tmp/dir/marker /tmp/dir/ /tmp/t/dir /tmp/t/dir/x; do
	call cubby cp "$W/new" "b:$path"
	want "$before" = "$(sums "$W/secret")"
done
# What was copied out may be links; a second copy through them goes nowhere else.
rm -rf "$W/out"
mkdir "$W/out"
want_status 0 cubby cp b:/tmp/t "$W/out"
want -L "$W/out/t/dir"
want_status 0 in_box b sh -c 'rm /tmp/t/dir /tmp/t/file; mkdir /tmp/t/dir; echo evil >/tmp/t/dir/marker; echo evil >/tmp/t/dir/x; echo evil >/tmp/t/file'
call cubby cp b:/tmp/t "$W/out"
want "$before" = "$(sums "$W/secret")"
want_status 0 cubby cp "$W/new" b:/tmp/plain
want_out '^new$' in_box b cat /tmp/plain
rm -rf "$W/out"

t "FS-04 a mount's place that is swapped for a link while another box starts stays inside the box"
mkdir -p "$W/shared" "$W/other"
echo other >"$W/other/of-other"
mkdir "$W/shared/m"
[[ $LAB_AS == root ]] || chmod 777 "$W/shared"
mounts=$(wc -l </proc/self/mountinfo)
mk s1 --mount "$W/shared:/s"
cubby exec --detach --user agent s1 -- sh -c 'cd /s; i=0; while [ $i -lt 20000 ] && ! [ -e stop ]; do i=$((i+1)); mv m m2; ln -s /etc m; rm m; mkdir -p m2; mv m2 m; done'
good=0
for ((i = 0; i < 25; i++)); do
	call once --mount "$W/shared:/s" --mount "$W/other:/s/m" -- sh -c 'ls -A /etc; echo --; ls -A /s/m'
	[[ $STATUS == 0 ]] && ((good++))
	case ${OUT%%--*} in *of-other*) fail "mounted over /etc" ;; esac
done
touch "$W/shared/stop"
note "$good of 25 started"
want "$mounts" = "$(wc -l </proc/self/mountinfo)"
want ! -e /etc/of-other
cubby rm --force s1 >/dev/null
rm -rf "$W/shared"
mkdir -p "$W/shared/m"
want_out '^of-other$' once --mount "$W/shared:/s" --mount "$W/other:/s/m" -- ls -A /s/m

t "FS-05 a hard link to a file outside the writable tree is refused"
want_status 0 in_box_user p sh -c "echo x >'$W/proj/own'"
allowed box_probe_user p hardlink "$W/proj/own" "$W/proj/own2"
links=$(stat -c %h "$W/ro/file")
for probe in box_probe box_probe_user; do
	blocked $probe p hardlink /ro/file "$W/proj/hl"
	blocked $probe p hardlink /etc/passwd "$W/proj/hl"
	blocked $probe p hardlink /bin/busybox "$W/proj/hl"
done
want "$links" = "$(stat -c %h "$W/ro/file")"

t "FS-06 what is mounted read-only stays so, in a fresh mount namespace as well"
allowed in_box n unshare -Urm /bin/sh -c 'mount -t tmpfs t /mnt && mount -o bind /mnt /mnt && mount -o remount,bind,ro /mnt && probe remount-rw /mnt'
for path in /ro /sys /proc/sys /proc/irq /dev/null; do
	blocked box_probe p remount-rw $path
	blocked box_probe_user p remount-rw $path
	blocked in_box n unshare -Urm /bin/probe remount-rw $path
	blocked in_box n unshare -Urm /bin/probe remount-sb $path
done
blocked box_probe p create /ro/new
blocked box_probe p open-write /ro/file
blocked box_probe_user p open-write /ro/file
blocked in_box n unshare -Urm /bin/sh -c 'mount -o remount,bind,rw /ro 2>/dev/null; probe create /ro/new'
want "$(cat "$W/ro/file")" = kept
allowed in_box n unshare -Urm /bin/sh -c 'mount -t tmpfs -o ro t /mnt && probe remount-sb /mnt'

t "FS-07 what hides parts of /proc and /sys can't be taken away"
allowed in_box n unshare -Urm /bin/sh -c 'mount -t tmpfs t /mnt && probe umount /mnt'
places=$(in_box b awk '$5 ~ "^/(proc|sys)/" { print $5 }' /proc/self/mountinfo </dev/null)
want "$(wc -w <<<"$places")" -ge 8
for path in $places /proc /sys; do
	blocked box_probe b umount "$path"
	blocked in_box n unshare -Urm /bin/probe umount "$path"
	blocked box_probe b bind /tmp "$path"
done
blocked box_probe_user b umount /proc
# A fresh procfs would show what is hidden.
for fs in proc sysfs; do
	blocked in_box n unshare -Urmpf /bin/probe mount $fs /mnt
	blocked box_probe b mount $fs /mnt
	blocked box_probe b fsopen $fs
done

t "FS-08 FS-11 no device of the host is made, opened or mounted"
[[ $LAB_AS == root ]] && allowed outside mknod "$W/node" 7 0 b
allowed box_probe b fifo /tmp/fifo
rm -f "$W/node"
for where in /tmp/node /dev/node "$W/proj/node" /run/node; do
	for device in "8 0 b" "7 0 b" "254 0 b" "1 1 c" "1 3 c" "10 229 c" "10 237 c"; do
		# shellcheck disable=SC2086
		blocked box_probe p mknod "$where" $device
		# shellcheck disable=SC2086
		blocked box_probe_user p mknod "$where" $device
	done
	want_status 1 in_box p test -e "$where"
done
want ! -e "$W/proj/node"
blocked box_probe b loop-device
for fs in ext4 xfs btrfs iso9660; do
	blocked box_probe b mount $fs /mnt '' /dev/loop0
	blocked box_probe n mount $fs /mnt '' /dev/vda
done
if [[ $LAB_AS == root ]]; then
	# A node that is there already, put by the host's root, doesn't open: no devices on that mount.
	mkdir "$W/devs"
	mount -t tmpfs devs "$W/devs"
	mknod "$W/devs/node" c 1 5
	chmod 666 "$W/devs/node"
	mk d --mount "$W/devs:/devs"
	allowed probe open-read "$W/devs/node"
	blocked box_probe d open-read /devs/node
	blocked box_probe_user d open-read /devs/node
	cubby rm --force d >/dev/null
	umount "$W/devs"
fi

t "FS-09 whiteouts and overlay attributes made inside are plain data or refused, also at the next start"
allowed box_probe b create /tmp/plain2
want_status 0 in_box b sh -c 'mkdir -p /opt/d; echo x >/opt/d/x; ln -s x /opt/d/l'
for name in trusted.overlay.opaque trusted.overlay.redirect trusted.overlay.metacopy; do
	blocked box_probe b setxattr /opt/d $name y
	blocked box_probe_user b setxattr /home/agent $name y
done
for name in user.overlay.opaque user.overlay.redirect user.overlay.whiteout user.overlay.metacopy; do
	for dir in /bin /etc /opt/d; do
		call box_probe b setxattr $dir $name /
		call box_probe b setxattr $dir $name y
	done
	call box_probe b setxattr /etc/passwd $name "$W/secret/marker"
done
call box_probe b mknod /opt/d/w 0 0 c
call box_probe b mknod /bin/whiteout 0 0 c
view=$(in_box b sh -c 'ls -A /bin /etc /opt/d; cat /etc/passwd' </dev/null)
want_status 0 cubby stop --force b
want_status 0 cubby start b
want "$view" = "$(in_box b sh -c 'ls -A /bin /etc /opt/d; cat /etc/passwd' </dev/null)"
blocked box_probe b find-marker "$(hex "$marker")"

t "FS-10 FS-18 files in the project are the caller's, never root's by the box's will, and never set-id"
owner=$(stat -c %u "$W/proj")
want_status 0 in_box_user p sh -c "cd '$W/proj'; echo x >by-user; mkdir dir; mkfifo pipe; ln -s x lnk; cp /bin/busybox tool"
for f in by-user dir pipe lnk tool; do want "$(stat -c %u "$W/proj/$f")" = "$owner"; done
call in_box p sh -c "echo x >'$W/proj/by-root'"
if [[ -e $W/proj/by-root ]]; then
	# Without idmapped mounts the box's root is one of the caller's subordinate ids.
	want "$LAB_AS" != root
	want "$(stat -c %u "$W/proj/by-root")" != 0
fi
for probe in box_probe box_probe_user; do
	blocked $probe p setuid-bit "$W/proj/tool"
done
for mode in 4755 2755 6755; do
	call in_box_user p sh -c "cd '$W/proj'; chmod $mode tool; install -m $mode /bin/busybox tool$mode; cp -a /bin/busybox t2; chmod $mode t2"
	call in_box p sh -c "cd '$W/proj'; chmod $mode tool; chmod $mode by-user"
done
cp "$TINY/bin/probe" "$W/suid-tool"
chmod 04755 "$W/suid-tool"
call cubby cp "$W/suid-tool" "p:$W/proj/copied"
want "$(find "$W/proj" -perm /6000 -type f | wc -l)" = 0
allowed box_probe b setuid-bit /tmp/plain2

t "FS-10 a writable mount takes no file capabilities and no leases, and is no single file of cubby's own"
for probe in box_probe box_probe_user; do
	blocked $probe p setxattr "$W/proj/tool" user.mark x
	blocked $probe p lease "$W/proj/tool"
done
allowed box_probe b setxattr /tmp/plain2 user.mark x
allowed probe lease "$W/leased"
want_err 125 "cubby's own data" cubby run --allow-weaker --template tiny --net none --mount "$CUBBY_STATE_DIR/cubby.db:/db" -- true

t "FS-10 FS-18 through the system's daemon, an ordinary user's files stay that user's"
if [[ $LAB_AS == root ]]; then
	sys() { as ann env CUBBY_RUN_DIR="$CUBBY_RUN_DIR" "$@"; }
	mkdir "$W/ann"
	chown 20001:20001 "$W/ann"
	want_status 0 sys cubby new --quiet --template tiny --net none --mount "$W/ann" annbox
	want_status 0 sys cubby exec annbox -- sh -c "echo x >'$W/ann/f'; cp /bin/busybox '$W/ann/tool'"
	call sys cubby exec --user root annbox -- sh -c "echo x >'$W/ann/g'; chmod 4755 '$W/ann/tool'; chown 0 '$W/ann/f'; chown 12 '$W/ann/f'"
	want "$(stat -c '%u %a' "$W/ann/f")" = '20001 644'
	want "$(stat -c '%u %a' "$W/ann/tool")" = '20001 755'
	want "$(find "$W/ann" ! -uid 20001 | wc -l)" = 0
	# Somebody else's directory can be named, and gives no more than she has: nothing of it can be written.
	mkdir "$W/roots"
	echo r >"$W/roots/file"
	chmod 600 "$W/roots/file"
	want_status 0 sys cubby new --quiet --template tiny --net none --mount "$W/roots:/r" annroots
	for user in root agent; do
		blocked sys cubby exec --user $user annroots -- /bin/probe open-read /r/file
		blocked sys cubby exec --user $user annroots -- /bin/probe create /r/new
	done
	allowed sys cubby exec annbox -- /bin/probe open-read "$W/ann/f"
	want_status 0 sys cubby rm --force annbox annroots
else
	want "$(id -u)" = "$(stat -c %u "$W/proj/by-user")"
fi

t "FS-12 pipes, sockets and closed directories are copied or passed over, and hold nobody up"
want_status 0 in_box b sh -c 'mkdir -p /tmp/odd/closed; cd /tmp/odd; mkfifo fifo; echo x >file; chmod 0 closed; timeout 1 nc -lU sock 2>/dev/null; ls' || :
cubby exec --detach --user root b -- /bin/probe unix-listen /tmp/odd/sock 30
want_soon 5 in_box b test -S /tmp/odd/sock
mkdir -p "$W/out"
begun=$SECONDS
call timeout 10 cubby cp b:/tmp/odd "$W/out"
want $((SECONDS - begun)) -le 5
want "$STATUS" != 124
want "$(cat "$W/out/odd/file")" = x
call timeout 10 cubby cp b:/tmp/odd/fifo "$W/out/f"
want "$STATUS" != 124
want ! -p "$W/out/f"
mkfifo "$W/hostfifo"
call timeout 10 cubby cp "$W/hostfifo" b:/tmp/hf
want "$STATUS" != 124
chmod -R u+rwx "$W/out"
rm -rf "$W/out" "$W/hostfifo"

t "FS-13 odd names survive a copy each way, and a tree of 10,000 levels can be removed"
mkdir -p "$W/names"
long=$(printf 'n%.0s' {1..255})
for name in $'new\nline' $'esc\e[31m' '-rf' '--help' $'bad\xff\xfe' "$long" ' ' 'a b' "q'\"" '*' $'\r' '...'; do printf '%s' "$name" >"$W/names/$name"; done
want_status 0 cubby cp "$W/names" b:/tmp/
want_status 0 cubby cp b:/tmp/names "$W/back"
want "$(cd "$W/names" && find . -type f -print0 | sort -z | xargs -0 sha256sum)" = "$(cd "$W/back" && find . -type f -print0 | sort -z | xargs -0 sha256sum)"
mk deep
want_status 0 in_box deep /bin/probe deep-tree /tmp 10000
call timeout 20 cubby cp deep:/tmp/d "$W/deep"
want "$STATUS" != 124
want "$STATUS" -lt 128
want_status 0 cubby info deep
want_status 0 cubby stop --force deep
want_status 0 cubby rm --force deep
want_status 0 timeout 60 rm -rf "$W/back" "$W/names" "$W/deep"

t "FS-14 a huge sparse file and many small ones end in time, or are refused"
mk many
call in_box many /bin/probe sparse /tmp/sparse 1000G
call timeout 10 cubby cp many:/tmp/sparse "$W/sparse"
want "$STATUS" != 124
if [[ $STATUS == 0 ]]; then want "$(du -k "$W/sparse" | cut -f1)" -lt 1024; else want ! -e "$W/sparse"; fi
rm -f "$W"/sparse* "$W"/.sparse*
want_status 0 in_box many /bin/probe files /tmp 20000
want_status 0 timeout 30 cubby rm --force many

t "FS-15 the host's root, cubby's own directories, and what holds them are refused as mounts"
want_status 0 once --mount "$W/proj:/x" -- true
ln -s "$CUBBY_STATE_DIR" "$W/state-link"
for source in / "$CUBBY_STATE_DIR" "$CUBBY_STATE_DIR/boxes" "$CUBBY_STATE_DIR/templates" "$CUBBY_RUN_DIR" "$CUBBY_RUN_DIR/boxes" \
	"$(dirname "$CUBBY_STATE_DIR")" "$W/state-link" "$W/../state" /proc/self/root /proc/1/root; do
	want_err 125 'cubby' once --mount "$source:/x" -- true
done
rm "$W/state-link"
for at in / /proc /proc/x /sys/x /dev /dev/null relative /a/../b; do
	call once --mount "$W/proj:$at" -- true
	want "$STATUS" != 0
done
want_status 125 once --mount "$W/none:/x" -- true
want ! -e "$W/none"

t "FS-16 no mount has peers, and what is mounted on one side isn't on the other"
for box in b p n; do
	blocked box_probe $box propagation
	blocked box_probe $box make-shared /
	want_not_out 'shared:|master:|propagate_from:' in_box $box cat /proc/self/mountinfo
done
allowed unshare -m --propagation private ${WEAK:+-Ur} sh -c 'mount -t tmpfs t /mnt && mount --make-shared /mnt && exec probe propagation'
before=$(cat /proc/self/mountinfo)
want_status 0 in_box n unshare -Urm /bin/sh -c "mount -t tmpfs inside /ro; mount -t tmpfs inside /mnt; grep -c inside /proc/self/mountinfo"
want "$before" = "$(cat /proc/self/mountinfo)"

t "FS-17 what the host mounts below a bound directory later doesn't appear in the box"
if mount -t tmpfs later "$W/proj/sub" 2>/dev/null; then
	echo later >"$W/proj/sub/later"
	want_out 'later' ls "$W/proj/sub"
	want_not_out 'later' in_box p ls -A "$W/proj/sub"
	umount "$W/proj/sub"
else
	# An ordinary user mounts nothing on the host; the directory is the same one on both sides.
	want "$LAB_AS" = user
	touch "$W/proj/sub/seen"
	want_out 'seen' in_box p ls -A "$W/proj/sub"
fi

t "FS-19 the files in /etc are the box's own"
before=$(sha256sum /etc/hosts /etc/resolv.conf /etc/localtime /etc/passwd /etc/hostname "$TINY"/etc/* 2>/dev/null)
want_status 0 in_box b sh -c 'for f in hosts resolv.conf localtime passwd hostname; do echo changed >/etc/$f.new; rm -f /etc/$f; mv /etc/$f.new /etc/$f || exit 1; done
	echo changed >>/etc/group'
want "$before" = "$(sha256sum /etc/hosts /etc/resolv.conf /etc/localtime /etc/passwd /etc/hostname "$TINY"/etc/* 2>/dev/null)"
want_out 'changed' in_box b cat /etc/hosts
want_not_out 'changed' once -- sh -c 'cat /etc/* 2>/dev/null; :'
want_not_out 'changed' in_box p sh -c 'cat /etc/* 2>/dev/null; :'

t "FS-20 an image whose directories are links to the host's is refused, or they are the box's: nothing is written outside"
mkdir -p "$W/target"
echo untouched >"$W/target/hosts"
for dir in dev proc sys run etc tmp root bin/sub; do
	for link in "$W/target" "../../../../../../../..$W/target" /proc/1/root /proc/self/cwd; do
		rm -rf "$W/img"
		mkdir "$W/img"
		cp -a "$TINY/." "$W/img/"
		rm -rf "${W:?}/img/$dir"
		ln -s "$link" "$W/img/$dir"
		before=$(sums "$W/target")
		call cubby template create evil "dir:$W/img"
		if [[ $STATUS != 0 ]]; then
			want "${ERR/\/$dir of this root file system is not a directory/}" != "$ERR"
			want "$before" = "$(sums "$W/target")"
			continue
		fi
		# shellcheck disable=SC2086
		call cubby new --quiet --template evil --net none $WEAK evilbox
		if [[ $STATUS == 0 ]]; then
			case $dir in
			proc) want_out '^9fa0$' cubby exec --user root evilbox -- stat -f -c %t /proc ;;
			sys) want_out '^62656572$' cubby exec --user root evilbox -- stat -f -c %t /sys ;;
			dev) want_out '^1,3$' cubby exec --user root evilbox -- stat -c %t,%T /dev/null ;;
			run) want_out '^1021994$' cubby exec --user root evilbox -- stat -f -c %t /run ;;
			esac
			call cubby exec --user root evilbox -- sh -c "echo x >/$dir/x; echo x >/$dir/hosts; ls -A /$dir/"
			call cubby exec evilbox -- sh -c "cat /$dir/hosts"
			want "${OUT/untouched/}" = "$OUT"
			want_status 0 cubby rm --force evilbox
		else
			want "$ERR" != ''
		fi
		call once --template evil -- true
		want "$before" = "$(sums "$W/target")"
		want_status 0 cubby template rm --force evil
	done
done
ln -s "$W/target" "$W/img-link"
call cubby template create evil "dir:$W/img-link"
[[ $STATUS == 0 ]] && want_status 0 cubby template rm --force evil
want "$(cat "$W/target/hosts")" = untouched
want ! -e "$W/target/x"
want "$(ls -A "$W/target")" = hosts
