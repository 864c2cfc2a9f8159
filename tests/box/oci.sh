#!/bin/bash
# templates from OCI images: what umoci makes is what a box sees, and what an image says about itself holds for its boxes
# modes: root user userns
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
command -v umoci >/dev/null || skip_file "there is no umoci: apt-get install umoci"
tiny_root || { t "the tiny root file system is made"; fail "bench/tiny-root failed"; exit 0; }
W=$LAB/work
IMG=$W/img
# once_of TEMPLATE ARGS...: `cubby run` of it; mk_of TEMPLATE NAME ARGS...: a box of it.
# shellcheck disable=SC2086
once_of() { timeout -k 2 "$CALL_SECONDS" cubby run --net none $WEAK --template "$@"; }
# shellcheck disable=SC2086
mk_of() { timeout -k 2 "$CALL_SECONDS" cubby new --net none $WEAK --template "$@"; }
rootless=()
[[ $LAB_AS == user ]] && rootless=(--rootless)
umoci() { command umoci "$@" </dev/null >"$W/umoci.log" 2>&1 || { cat "$W/umoci.log"; return 1; }; }

# layer TAG CMD...: a layer more, with what the command does in the root file system of the image.
layer() {
	local tag=$1
	shift
	rm -rf "$W/bundle"
	umoci unpack "${rootless[@]}" --image "$IMG:$tag" "$W/bundle" && (cd "$W/bundle/rootfs" && "$@") &&
		umoci repack --image "$IMG:$tag" "$W/bundle"
}
first() {
	cp -a "$TINY/." .
	mkdir -p srv/app/data/deep old/dir many etc sticky
	echo one >srv/app/one
	echo two >srv/app/two
	echo deep >srv/app/data/deep/file
	echo old >old/dir/file
	ln srv/app/one srv/app/same
	ln -s one srv/app/link
	ln -s /nowhere/at/all srv/app/dangling
	truncate -s 3M srv/app/sparse
	printf x | dd of=srv/app/sparse bs=1 seek=2000000 conv=notrunc status=none
	long=$(printf 'n%.0s' {1..200})
	mkdir -p "$long/$long"
	echo long >"$long/$long/$long"
	for ((i = 0; i < 300; i++)); do echo $i >many/$i; done
	chmod 1777 sticky
	chmod 4755 bin/probe
	[[ $LAB_AS == user ]] || chown 33:44 srv/app/two
	printf 'root:x:0:0:root:/root:/bin/sh\nwww:x:33:44:www:/srv:/bin/sh\n' >etc/passwd
	printf 'root:x:0:\nwww:x:44:\n' >etc/group
}
second() {
	rm -r old srv/app/two many/1*
	rm -r srv/app/data
	mkdir srv/app/data
	echo new >srv/app/data/new
	rm srv/app/link
	mkdir srv/app/link
	echo changed >srv/app/one
	mkfifo srv/app/fifo
}
third() {
	rm -r many
	echo 'a file now' >many
	ln bin/busybox srv/app/busybox
	mkdir -p 'odd name/ä'
	echo x >'odd name/ä/'$'tab\there'
}
images() {
	umoci init --layout "$IMG" && umoci new --image "$IMG:v1" && layer v1 first && layer v1 second && layer v1 third || return
	mkdir -p "$W/in/sub"
	echo in >"$W/in/sub/file"
	umoci insert "${rootless[@]}" --image "$IMG:v1" --opaque "$W/in" /srv/app/data &&
		umoci config --image "$IMG:v1" --config.workingdir /srv/app --config.env GREETING='hello world' --config.env PATH=/srv/bin:/bin \
			--config.entrypoint /bin/echo --config.cmd hi
}
t "images are made with umoci"
want_status 0 images || exit 0

# tree CMD...: what is in a root file system, by busybox in it: all but what every box has of its own.
# shellcheck disable=SC2016
look='cd /; find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./etc -o -path ./home -o -path ./tmp \) -prune \
	-o ! -path . -print | LC_ALL=C sort >/tmp/names; while IFS= read -r f; do stat -c "%n|%f|%u|%g|%Y" "$f"
	[ -d "$f" ] || stat -c %h "$f"; if [ -h "$f" ]; then readlink "$f"; elif [ -f "$f" ]; then sha256sum "$f"; fi; done </tmp/names; rm /tmp/names'

t "FS-05 the tree of a box is the one that umoci unpacks"
want_status 0 cubby template create img "oci:$IMG:v1"
cubby template log img >"$W/log" </dev/null
want_out '5 of 5|4 of 4|has [45] layers' cat "$W/log"
mkdir -p "$W/ref"
want_status 0 umoci unpack "${rootless[@]}" --image "$IMG:v1" "$W/ref/b"
if [[ $LAB_AS == root ]]; then
	mkdir -p "$W/ref/b/rootfs/tmp"
	chroot "$W/ref/b/rootfs" /bin/busybox sh -c "$look" >"$W/want" </dev/null
	once_of img --user root -- /bin/busybox sh -c "$look" >"$W/have" </dev/null
	want "$(wc -l <"$W/want")" -gt 50
	diff "$W/want" "$W/have" >"$W/diff" || { fail "they differ"; head -n 20 "$W/diff" | sed 's/^/# /'; }
else
	want_out '^ *1$' once_of img -- /bin/sh -c 'ls /srv/app/data | wc -l'
	want_out '^in$' once_of img -- cat /srv/app/data/sub/file
	want_out '^a file now$' once_of img -- cat /many
	want_out '^changed$' once_of img -- cat /srv/app/same
	want_not_out two once_of img -- ls /srv/app
fi

t "what a box writes over an image stays in the box"
want_status 0 mk_of img --user root w
want_status 0 cubby exec w -- sh -c 'rm -r /srv/app/data /bin/probe; echo x >/srv/app/one; mkdir /many2; mv /sticky /moved'
want_out '^changed$' once_of img -- cat /srv/app/one
want_out '^in$' once_of img -- cat /srv/app/data/sub/file
want_err 1 "is used by box 'w'" cubby template rm --force img
want_status 0 cubby rm --force w

t "what the image says holds for its boxes, and what the caller says goes before"
# shellcheck disable=SC2016
want_out '^/srv/app\|hello world\|/srv/bin:/bin$' once_of img -- sh -c 'echo "$PWD|$GREETING|$PATH"'
# shellcheck disable=SC2016
want_out '^/bin\|hello there$' once_of img --workdir /bin --env 'GREETING=hello there' -- sh -c 'echo "$PWD|$GREETING"'
want_status 0 mk_of img --env GREETING=mine n
# shellcheck disable=SC2016
want_out '^/srv/app\|mine\|/srv/bin:/bin$' cubby exec n -- sh -c 'echo "$PWD|$GREETING|$PATH"'
want_status 0 cubby rm --force n
want_status 0 umoci config --image "$IMG:v1" --tag user --config.user www:www
want_status 0 cubby template create user "oci:$IMG:user"
if [[ $LAB_AS != user ]]; then
	want_out '^33 44$' once_of user -- sh -c 'echo $(id -u) $(id -g)'
	want_out '^0$' once_of user --user root -- id -u
fi
want_status 0 umoci config --image "$IMG:v1" --tag nobody --config.user nosuch
want_status 0 cubby template create nobody "oci:$IMG:nobody"
want_out '.' once_of nobody -- id -u
want_out "has no 'nosuch'" cubby template log nobody
want_out '/bin/echo' cubby template info img
want_out '^hi$' jq -r '.image.cmd[]' <(cubby template info --json img </dev/null)

t "templates with the same layers have them once"
layers() { find "$CUBBY_STATE_DIR/layers-oci" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l; }
want "$(layers)" = 4
want_out '4 of 4 layers were there already' cubby template log user
want_status 0 cubby template rm --force img nobody
want "$(layers)" = 4
want_out '^changed$' once_of user -- cat /srv/app/one
want_status 0 cubby template rm --force user
want "$(layers)" = 0

t "a build that is cancelled, or whose time is over, leaves nothing"
big() { head -c 400M /dev/urandom >big; }
if [[ $LAB_AS == root ]]; then
	want_status 0 layer v1 big
	want_err 1 "time limit" cubby template create big "oci:$IMG:v1" --time-limit 100ms
	want "$(layers)" = 0
	cubby template create big "oci:$IMG:v1" --no-wait </dev/null >"$W/out" 2>&1
	want_status 0 cubby template cancel big
	want "$(layers)" = 0
	want_out '^failed$' jq -r .state <(cubby template info --json big </dev/null)
	want_out 'cancelled' jq -r .error <(cubby template info --json big </dev/null)
	want_status 0 cubby template rm --force big
	want -z "$(find "$CUBBY_STATE_DIR/building" -mindepth 1 ! -path '*-gone.*')"
	cubby template create big "oci:$IMG:v1" --no-wait </dev/null >"$W/out" 2>&1
	want_status 0 cubby template rm --force big
	want "$(layers)" = 0
else
	skip "in root mode"
fi

t "a name that isn't there is told with those that are"
want_err 1 "there is no image 'v2' in it; named are: .*v1" cubby template create x "oci:$IMG:v2"
want_err 1 "cannot open '$W/nothing'" cubby template create x "oci:$W/nothing"
want_err 1 "has no index.json" cubby template create x "oci:$W"
want_err 2 "named twice" cubby template create x "oci:$W" --from "oci:$W"
want "$(layers)" = 0
