#!/bin/bash
# what container runtimes got wrong: programs, descriptors, images, ids, names and options that are traps
# modes: root user userns
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
[[ $LAB_AS == root ]] && printf 'grants = ann, bob\n' >"$CUBBY_CONFIG"
need_template tiny
mk b

t "RUN-01 a program that stands for /proc/self/exe reaches nothing of the host's, and no program of cubby's changes"
programs=("$BUILD/src/prog/cubby" "$BUILD/src/prog/cubbyd")
for f in "$BUILD"/src/guest/cubby-init "$BUILD"/src/prog/cubby-init; do [[ -f $f ]] && programs+=("$f"); done
before=$(sha256sum "${programs[@]}")
want_status 0 in_box b sh -c 'printf "#!/proc/self/exe\n" >/tmp/x; chmod 755 /tmp/x; ln -s /proc/self/exe /tmp/y; ln -s /proc/1/exe /tmp/z
	cp /bin/probe /tmp/p; printf "#!/proc/1/exe --listen=3\n" >/tmp/w; chmod 755 /tmp/w'
for program in /tmp/x /tmp/y /tmp/z /tmp/w /proc/self/exe /proc/1/exe; do
	call in_box b "$program"
	want "$STATUS" != 0
	call in_box_user b "$program"
	want "$STATUS" != 0
done
# Held open for as long as commands start, as the attack does: nothing but its own file is there to be held.
cubby exec --detach --user root b -- sh -c 'i=0; while [ $i -lt 300 ]; do i=$((i+1)); for p in /proc/[0-9]*; do
	( : >>$p/exe ) 2>/dev/null && echo $p >>/tmp/opened; done; done; echo done >>/tmp/ended'
for i in 1 2 3 4 5 6 7 8 9 10; do call in_box b true; done
allowed box_probe b open-write /tmp/p
blocked box_probe b open-write /proc/1/exe
want_soon 30 in_box b test -e /tmp/ended
want_status 1 in_box b test -e /tmp/opened
want "$before" = "$(sha256sum "${programs[@]}")"

t "RUN-02 no working directory leads through a descriptor, whatever the caller holds open"
mkdir -p "$LAB/work/bait"
want_out '^/tmp$' cubby exec -w /tmp b -- pwd
for n in 0 1 3 4 5 6 7 8 9 10 12 18 20; do
	for verb in exec run; do
		if [[ $verb == exec ]]; then how="exec --user root"; else how="run --template tiny --net none $WEAK"; fi
		[[ $verb == exec ]] && box=b || box=''
		call sh -c "exec 7<$LAB/work/bait 8<$LAB/work/bait 9</; exec timeout 10 cubby $how -w /proc/self/fd/$n $box -- ls -la ."
		want "$STATUS" = 125
	done
done
for dir in /proc/self/cwd /proc/self/root /proc/1/cwd /proc/1/root /proc/1/fd/18 /proc/self/fd/../../1/root; do
	want_status 125 cubby exec --user root -w "$dir" b -- pwd
done
want_status 0 in_box b ln -sf /proc/self/root /tmp/magic
want_status 125 cubby exec --user root -w /tmp/magic b -- pwd

t "RUN-03 an image whose /dev/null leads elsewhere gets a null device all the same, and so do the masks"
for kind in link-proc link-host file missing dir fifo; do
	rm -rf "$LAB/work/img"
	mkdir "$LAB/work/img"
	cp -a "$TINY/." "$LAB/work/img/"
	printf 'untouched' >"$LAB/work/victim"
	case $kind in
	link-proc) ln -s /proc/sys/kernel/core_pattern "$LAB/work/img/dev/null" ;;
	link-host) ln -s "$LAB/work/victim" "$LAB/work/img/dev/null" ;;
	file) echo x >"$LAB/work/img/dev/null" ;;
	missing) rmdir "$LAB/work/img/dev" ;;
	dir) mkdir "$LAB/work/img/dev/null" ;;
	fifo) mkfifo "$LAB/work/img/dev/null" ;;
	esac
	want_status 0 cubby template create "null-$kind" "dir:$LAB/work/img"
	# shellcheck disable=SC2086
	call cubby new --quiet --template "null-$kind" --net none $WEAK nb
	if [[ $STATUS == 0 ]]; then
		for mask in /dev/null /proc/keys /proc/timer_list /proc/kallsyms; do
			[[ -e $mask ]] && want_out '^character special file 1,3$' cubby exec --user root nb -- stat -c '%F %t,%T' $mask
		done
		want_out '^through' box_probe nb open-write /dev/null
		call cubby rm --force nb
	else
		want "$STATUS" = 1
	fi
	want "$(cat "$LAB/work/victim")" = untouched
	want_status 0 cubby template rm --force "null-$kind"
done

t "RUN-04 b11 an image that brings its own /proc gets the kernel's over it, and no descriptor with it"
rm -rf "$LAB/work/img"
mkdir "$LAB/work/img"
cp -a "$TINY/." "$LAB/work/img/"
mkdir -p "$LAB/work/img/proc/self/fd" "$LAB/work/img/proc/self/attr" "$LAB/work/img/proc/sys/kernel" "$LAB/work/img/proc/1"
for f in self/fd/4 self/attr/exec sys/kernel/core_pattern self/uid_map self/setgroups keys kcore 1/oom_score_adj mounts; do
	echo planted >"$LAB/work/img/proc/$f"
done
want_status 0 cubby template create ownproc "dir:$LAB/work/img"
# shellcheck disable=SC2086
call cubby new --quiet --template ownproc --net none $WEAK op
want "$STATUS" = 0
want_out '^(proc|9fa0)$' cubby exec --user root op -- stat -f -c %t /proc
want_out '^(0|1|2)
(1
2)?' cubby exec --user root op -- sh -c '/bin/probe fds | cut -d" " -f1'
want_not_out '(^|
)([3-9]|[1-9][0-9]+) ' cubby exec --user root op -- /bin/probe fds
want_status 1 cubby exec --user root op -- grep -rsq planted /proc/self/attr /proc/self/uid_map /proc/sys/kernel/core_pattern /proc/keys
blocked box_probe op open-write /proc/sys/kernel/core_pattern
allowed box_probe op create /tmp/x
want_not_out '0::/.|planted' cubby exec --user root op -- sh -c 'grep -l planted /proc/* 2>/dev/null; true'
cubby rm --force op >/dev/null

t "RUN-05 RUN-06 RUN-07 archives: nothing is written, linked or deleted outside of the template"
printf 'victim' >"$LAB/work/victim"
mkdir -p "$LAB/work/tar/in" "$LAB/work/out"
links=$(stat -c %h "$LAB/work/victim")
before=$(sums "$LAB/work/victim" "$LAB/work/out")
(
	cd "$LAB/work/tar" || exit
	echo evil >evil
	echo evil >in/evil
	tar -cPf dots.tar --transform "s,^evil,../../../../../../..$LAB/work/out/evil," evil
	tar -cPf absolute.tar --transform "s,^evil,$LAB/work/out/evil," evil
	ln -s "$LAB/work/out" through
	tar -cf link.tar through
	rm through
	mkdir through
	echo evil >through/evil
	tar -rf link.tar through/evil
	rm -r through
	tar -cPf hard.tar --transform "s,^evil$,first,;s,^in/evil$,second,;" evil
	ln "$LAB/work/victim" hardlinked 2>/dev/null && ln hardlinked again
	tar -cPf hard.tar --transform "s,^hardlinked$,$LAB/work/victim," hardlinked again
	rm -f hardlinked again
	: >.wh...
	: >.wh..
	: >'.wh..wh..opq'
	tar -cf whiteout.tar .wh... .wh.. .wh..wh..opq
)
links=$(stat -c %h "$LAB/work/victim")
for kind in dots absolute link hard whiteout; do
	call cubby template create "tar-$kind" "tar:$LAB/work/tar/$kind.tar"
	want "$STATUS" -le 1
	want "$before" = "$(sums "$LAB/work/victim" "$LAB/work/out")"
	want "$links" = "$(stat -c %h "$LAB/work/victim")"
	[[ $STATUS == 0 ]] && want_status 0 cubby template rm --force "tar-$kind"
done
(cd "$TINY" && tar -cf "$LAB/work/tar/good.tar" .)
want_status 0 cubby template create tar-good "tar:$LAB/work/tar/good.tar"
# shellcheck disable=SC2086
want_out '^in$' cubby run --template tar-good --net none $WEAK -- echo in

t "RUN-09 nothing is inherited or ambient in a command, whoever runs it"
for user in root agent 12 12:34; do
	want_out '^CapInh 0+
CapPrm [0-9a-f]+
CapEff [0-9a-f]+
CapBnd 00000000a80425fb
CapAmb 0+' cubby exec --user $user b -- /bin/probe caps
done
want_out 'CapPrm 0+
CapEff 0+
' cubby exec --user 12 b -- /bin/probe caps

t "RUN-10 groups are those of the box's own file, none of the caller's, and nobody drops one to be let in"
want_out 'Groups[ 	]*
' in_box b /bin/probe ids
want_out 'Groups[ 	]*
' in_box_user b /bin/probe ids
want_status 0 in_box b sh -c 'echo secret >/tmp/denied; chown 0:1000 /tmp/denied; chmod 604 /tmp/denied'
allowed cubby exec --user 12 b -- /bin/probe open-read /tmp/denied
blocked box_probe_user b open-read /tmp/denied
blocked box_probe_user b setgroups
blocked box_probe_user b setgroups 0
allowed box_probe b setgroups 12

t "RUN-11 a user is meant exactly, or refused: never root by accident"
for user in 0x0 +0 -0 -1 ' 0' '0 ' '1000:' ':0' ':' '0:' 4294967295 4294967296 18446744073709551616 1e3 '0:0:0' $'0\n' $'root\n' \
	'root:' 'ROOT' '1000:0x0' '１' '../root' 'root,agent' 00x; do
	call timeout 10 cubby exec --user "$user" b -- id -u
	want "$STATUS" != 0
	want "$OUT" = ''
done
want_status 0 in_box b sh -c 'echo "1001:x:0:0::/:/bin/sh" >>/etc/passwd; echo "65534x:x:0:0::/:/bin/sh" >>/etc/passwd
	printf "evil:x:-1:0::/:/bin/sh\nwrap:x:4294967296:0::/:/bin/sh\nempty:x:::::\nhex:x:0x0:0::/:/bin/sh\n" >>/etc/passwd'
want_out '^1001 1001$' cubby exec --user 1001 b -- sh -c 'echo $(id -u) $(id -g)'
for user in 65534x evil wrap empty hex; do
	call timeout 10 cubby exec --user $user b -- id -u
	want "$STATUS" != 0
	want "$OUT" = ''
done
want_out '^0$' cubby exec --user root b -- id -u
want_out '^0$' cubby exec --user 0 b -- id -u
want_out '^1000 12$' cubby exec --user 1000:12 b -- sh -c 'echo $(id -u) $(id -g)'
want_out '^1000$' cubby exec --user agent b -- id -u

t "RUN-12 values of variables arrive as they are, or are refused"
for value in $'a\nb' 'x=y=z' $'\e[31m' '' ' ' $'tab\there' '$HOME `id`' $'line\nROOT=1' "quote'\""; do
	call timeout 10 cubby exec -e "ODD=$value" b -- sh -c 'printf "%s." "$ODD"'
	want "$STATUS" = 0
	want "$OUT" = "$value."
	want_not_out '(^|
)ROOT=' cubby exec -e "ODD=${value//ROOT/R}" b -- env
done
# shellcheck disable=SC2086
want_status 0 cubby new --quiet --template tiny --net none $WEAK -e $'ODD=one\nuser=root\nmounts=/' envbox
call cubby exec envbox -- sh -c 'printf "%s|" "$ODD"; id -u'
want "$OUT" = $'one\nuser=root\nmounts=/|1000'
want "$(field envbox '.mounts | length')" = 0
want_status 0 cubby stop --force envbox
call cubby exec envbox -- sh -c 'printf "%s|" "$ODD"; id -u'
want "$OUT" = $'one\nuser=root\nmounts=/|1000'
for name in '=x' ''; do
	call timeout 10 cubby exec -e "$name" b -- true
	want "$STATUS" != 0
done
cubby rm --force envbox >/dev/null

t "RUN-13 one rule for names, with every verb"
long=$(printf 'a%.0s' {1..300})
before=$(sums "$CUBBY_STATE_DIR/templates" "$CUBBY_STATE_DIR/boxes" 2>/dev/null; cubby ls --names)
# shellcheck disable=SC2086
for name in ../x a/b /abs . .. ' ' 'a b' $'a\nb' "$long" 'аpple' 'a;b' 'a:b' 'A' 'a_b' '' $'a\e[1m' 'a*' '-x'; do
	for verb in "new --template tiny --net none $WEAK -- " "run --template tiny --net none $WEAK --name" "rename -- b" "rm --force --" \
		"start --" "stop --" "info --" "exec --" "template create --" "template rm --" "template info --"; do
		call timeout 10 cubby $verb "$name" ${verb:+$([[ $verb == exec* ]] && echo true; [[ $verb == run* ]] && echo -- true; [[ $verb == "template create"* ]] && echo "dir:$TINY")}
		if [[ $STATUS == 0 ]]; then fail "accepted: cubby $verb '$name'"; fi
	done
done
want "$before" = "$(sums "$CUBBY_STATE_DIR/templates" "$CUBBY_STATE_DIR/boxes" 2>/dev/null; cubby ls --names)"
mk good-name-1
want_status 0 cubby rename good-name-1 good-name-2
want_status 0 cubby rm --force good-name-2

t "RUN-14 settings inside an image or a box are ignored"
rm -rf "$LAB/work/img"
mkdir "$LAB/work/img"
cp -a "$TINY/." "$LAB/work/img/"
for f in config.json cubby.conf .cubby/cubby.conf etc/cubby/cubby.conf manifest.json metadata.yaml template.json; do
	mkdir -p "$(dirname "$LAB/work/img/$f")"
	printf '{"mounts":[{"at":"/host","source":"/"}],"nesting":true,"user":"root","privileged":true}\nuser = root\nnesting = yes\n' >"$LAB/work/img/$f"
done
want_status 0 cubby template create meta "dir:$LAB/work/img"
# shellcheck disable=SC2086
want_status 0 cubby new --quiet --template meta --net none $WEAK mb
want_out '^1000$' cubby exec mb -- id -u
want "$(field mb '"\(.mounts | length) \(.nesting)"')" = '0 false'
blocked box_probe mb unshare user
blocked box_probe mb list /host
allowed box_probe mb list /tmp
cubby rm --force mb >/dev/null

t "RUN-17 a mount's source that is swapped for a link meanwhile shows what the caller may see, or nothing"
mkdir -p "$LAB/work/src" "$LAB/work/dir" "$LAB/work/hidden"
echo open >"$LAB/work/dir/file"
echo "$RANDOM" >"$LAB/work/hidden/secret"
if [[ $LAB_AS == root ]]; then
	chmod 755 "$LAB/work"
	chown 20001 "$LAB/work/src" "$LAB/work/dir"
	chmod 700 "$LAB/work/hidden"
	sys() { as ann env CUBBY_RUN_DIR="$CUBBY_RUN_DIR" "$@"; }
	sys mkdir "$LAB/work/src/m"
	want_out 'secret' ls "$LAB/work/hidden"
	blocked as ann probe list "$LAB/work/hidden"
	allowed as ann probe list "$LAB/work/dir"
	setpriv --reuid=20001 --regid=20001 --clear-groups bash -c 'cd "$1/src"; for ((i = 0; i < 100000; i++)); do [[ -e stop ]] && break
		mv -T m m2; ln -s ../hidden m; rm m; ln -s ../dir m; rm m; mv -T m2 m; done' sh "$LAB/work" &
	swapper=$!
	seen=0
	for ((i = 0; i < 30; i++)); do
		call sys cubby run --template tiny --net none --mount "$LAB/work/src/m:/m" -- ls -A /m
		[[ $STATUS == 0 ]] && ((seen++))
		want "${OUT/secret/}" = "$OUT"
	done
	sys touch "$LAB/work/src/stop"
	wait "$swapper"
	want "$seen" -gt 0

	# And between two starts: the daemon opens it with the rights of the owner, and no others.
	rm -rf "$LAB/work/src/m" "$LAB/work/src/m2"
	sys mkdir "$LAB/work/src/m"
	want_status 0 sys cubby new --quiet --template tiny --net none --mount "$LAB/work/src/m:/m" swapped
	want_status 0 sys cubby stop --force swapped
	sys rmdir "$LAB/work/src/m"
	# A directory that ann could not list, she gets to mount, and can't list in the box either.
	sys ln -s ../hidden "$LAB/work/src/m"
	for user in root agent; do
		call sys cubby exec --user $user swapped -- ls -A /m
		want "$STATUS" != 0
		want "$OUT" = ''
	done
	call sys cubby stop --force swapped
	sys rm "$LAB/work/src/m"
	mkdir -p "$LAB/work/hidden/inner"
	sys ln -s ../hidden/inner "$LAB/work/src/m"
	call sys cubby start swapped
	want "$STATUS" != 0
	sys rm "$LAB/work/src/m"
	sys mkdir "$LAB/work/src/m"
	want_status 0 sys cubby start swapped
	want_status 0 sys cubby rm --force swapped
else
	allowed box_probe b list /tmp
	mkdir "$LAB/work/src/m"
	mk swapped --mount "$LAB/work/src/m:/m"
	want_status 0 cubby stop --force swapped
	rmdir "$LAB/work/src/m"
	ln -s "$CUBBY_STATE_DIR" "$LAB/work/src/m"
	call cubby start swapped
	want "$STATUS" != 0
	want_status 0 cubby rm --force swapped
fi

t "RUN-18 what begins with a dash is data after the box's name or --"
for word in --version --help -h --user=root --; do
	want_status 127 cubby exec b -- "$word"
done
want_out '^--user root$' cubby exec b echo --user root
want_out '^1000$' cubby exec b -- sh -c 'id -u' --user root
call cubby rm -- --all
want "$STATUS" != 0
call cubby cp -- --user "$LAB/work/o"
want "$STATUS" != 0
want_status 0 field b .id
# shellcheck disable=SC2086
want_out '^--keep$' cubby run --template tiny --net none $WEAK -- echo --keep

t "RUN-19 a hostile environment, closed descriptors and small limits do nothing to the privileged part"
mkdir -p "$LAB/work/evil"
for name in cubbyd cubby-init newuidmap newgidmap mount tar nft; do
	printf '#!/bin/sh\necho %s >>%s/work/evil/ran\n' "$name" "$LAB" >"$LAB/work/evil/$name"
	chmod 755 "$LAB/work/evil/$name"
done
want_status 0 cubby rm --force b
want_status 0 daemon_stop
cubby=$BUILD/src/prog/cubby
hostile=(env "PATH=$LAB/work/evil:/usr/bin:/bin" "LD_PRELOAD=$LAB/work/evil/x.so" "LD_LIBRARY_PATH=$LAB/work/evil" "TMPDIR=$LAB/work/evil"
	LC_ALL=xx_XX "LOCPATH=$LAB/work/evil" "GCONV_PATH=$LAB/work/evil" "MALLOC_CHECK_=3" "TZ=:$LAB/work/evil/x" "IFS=x" "BASH_ENV=$LAB/work/evil/cubbyd"
	"ENV=$LAB/work/evil/cubbyd" "GLIBC_TUNABLES=glibc.malloc.check=3" "SQLITE_TMPDIR=$LAB/work/evil")
# shellcheck disable=SC2086
want_out 'in$' "${hostile[@]}" "$cubby" run --template tiny --net none $WEAK -- echo in
want_status 1 test -e "$LAB/work/evil/ran"
mk b
want_not_out 'evil' cubby exec b -- env
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '<&- >&- 2>&-'; do
	call sh -c "timeout 10 cubby exec b -- true $closed"
	want "$STATUS" -le 125
	want_status 0 cubby exec b -- true
done
want_status 0 sh -c 'ulimit -n 20; exec timeout 10 cubby exec b -- true'
call sh -c 'ulimit -v 20000 -f 0 -c unlimited; exec timeout 10 cubby exec b -- sh -c "echo x >/tmp/f; cat /tmp/f"'
want "$STATUS" != 124
want_out ' 1  *1 ' cubby exec b -- grep 'core file' /proc/self/limits

t "RUN-20 a later daemon holds the boxes of the earlier one: what it removes has ended"
pid=$(field b .pid)
want_status 0 daemon_stop
want_out 'running' cubby ls
want "$(field b .pid)" = "$pid"
want_status 0 cubby exec b -- true
want_status 0 cubby rm --force b
want_status 1 test -e "/proc/$pid/status"

t "RUN-20 a note about another process is not believed"
mk b
sleep 300 &
other=$!
id=$(field b .id)
want_status 0 cubby stop --force b
want_status 0 daemon_stop
mkdir -p "$CUBBY_RUN_DIR/boxes/$id"
printf '%d %d %d\n' "$other" "$(cut -d' ' -f22 "/proc/$other/stat")" 1 >"$CUBBY_RUN_DIR/boxes/$id/init.pid"
want_out 'b  *stopped' cubby ls
want_status 0 cubby exec b -- true
want_status 0 cubby rm --force b
want_status 0 kill -0 "$other"
kill "$other"
wait "$other" 2>/dev/null
want_status 0 cubby ls

t "RUN-21 a source of a template is a path, whatever it looks like"
for source in "tar:--use-compress-program=touch $LAB/work/evil/ran" "tar:|touch $LAB/work/evil/ran" "dir:--help" "tar:\$(touch $LAB/work/evil/ran)"; do
	call cubby template create odd "$source"
	want "$STATUS" != 0
done
want_status 1 test -e "$LAB/work/evil/ran"
