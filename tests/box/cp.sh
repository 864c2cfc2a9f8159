#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086,SC2016
# cubby cp with real trees: many files, modes, times, links, holes, odd names; what it leaves out
# modes: root userns
# seconds: 180
. "${TEST_LIB:?}/box.bash"
need_template tiny
weak=
[[ $LAB_AS == root ]] || weak=--allow-weaker
want_status 0 cubby new -q $weak --template tiny box
cd "$LAB/work" || exit 1
CALL_SECONDS=60

# sums DIR: everything that cp promises to keep, one line for each file, sorted.
sums() {
	(cd "$1" && find . -printf '%P|%y|%l|%#m|%Ts\n' | awk -F'|' '$2 == "l" { $4 = $5 = "-" } { print $1, $2, $3, $4, $5 }' | LC_ALL=C sort
	find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
}

t "10,000 files, there and back: names, contents, modes, times, links"
mkdir -p tree/odd
for ((d = 0; d < 100; d++)); do
	mkdir "tree/$d"
	(cd "tree/$d" && for ((i = 0; i < 100; i++)); do echo "$d $i" >"f$i"; done)
done
echo run >tree/odd/run && chmod 755 tree/odd/run
echo own >tree/odd/own && chmod 600 tree/odd/own
: >tree/odd/empty
ln -s run tree/odd/link
ln -s /nonexistent/place tree/odd/dangling
ln -s .. tree/odd/up
echo new >"tree/odd/a new
line"
echo sp >'tree/odd/ -rf * ; $(x)'
printf 'x' >"tree/odd/$(printf '\377\376')"
touch -d '2001-02-03 04:05:06' tree/odd/run
chmod 750 tree/odd
touch -d '1999-01-02 03:04:05' tree/odd
want "$(find tree -type f | wc -l)" -ge 10000
want_status 0 cubby cp tree box:/tmp/
want_status 0 cubby cp box:/tmp/tree back
sums tree >before
sums back >after
want_status 0 cmp before after
want "$(wc -l <before)" -ge 20000

t "the comparison can fail"
echo changed >>back/7/f7
sums back >after
want_status 1 cmp -s before after
rm -rf back

t "a file with holes stays small, and is the same"
truncate -s 200M holes
printf middle | dd of=holes bs=1 seek=100000000 conv=notrunc status=none
want_status 0 cubby cp holes box:/tmp/holes
want_out '^2097152[0-9]*$' cubby exec box -- stat -c %s /tmp/holes
want "$(cubby exec box -- stat -c %b /tmp/holes)" -lt 4096
want_status 0 cubby cp box:/tmp/holes holes2
want "$(stat -c %b holes2)" -lt 4096
want_status 0 cmp holes holes2
rm -f holes holes2

t "owners don't travel, set-id bits are dropped, both ways"
echo id >setid && chmod 6755 setid
want_status 0 cubby cp --user root setid box:/tmp/setid
want_out '^755 0$' cubby exec --user root box -- stat -c '%a %u' /tmp/setid
want_status 0 cubby exec --user root box -- sh -c 'cp /bin/busybox /tmp/s2; chmod 6755 /tmp/s2'
want_status 0 cubby cp --user root box:/tmp/s2 s2
want "$(stat -c '%a %u' s2)" = "755 $(id -u)"

t "what can't be read is said, and the copy is not called complete"
want_status 0 cubby exec --user root box -- sh -c 'mkdir /tmp/part && echo a >/tmp/part/a && echo b >/tmp/part/b && chmod 600 /tmp/part/b && chmod 755 /tmp/part'
call cubby cp --user 12 box:/tmp/part part
want "$STATUS" = 1
want "$(grep -c 'not copied: part/b: ' <<<"$ERR")" = 1
want "$(cat part/a)" = a
want ! -e part/b
want_status 0 cubby cp --user root box:/tmp/part whole
want "$(cat whole/b)" = b

t "FIFOs and sockets are named and counted, out of a box and into it"
want_status 0 cubby exec box -- sh -c 'mkdir /tmp/ff && mkfifo /tmp/ff/fifo && echo x >/tmp/ff/x'
want_err 0 'not copied: ff/fifo: a device, a FIFO or a socket' cubby cp box:/tmp/ff ff
want "$(cat ff/x)" = x
want ! -e ff/fifo
mkfifo ff/mine
call cubby cp --json ff box:/tmp/ff2
want "$STATUS:$(jq -r '"\(.files):\(.skipped):\(.unreadable)"' <<<"$OUT")" = 0:1:1:0
want "$(grep -c 'not copied: ff/mine: a device' <<<"$ERR")" = 1
mkfifo ff/mine2
want_err 0 'not copied: mine2: a device' cubby cp ff/. box:/tmp/ff2

t "a second copy replaces files whole, and a directory takes another one in"
echo two >tree/7/f7
want_status 0 cubby cp tree/7 box:/tmp/tree/
want_out '^two$' cubby exec box -- cat /tmp/tree/7/f7
want_status 0 cubby cp tree/7/. box:/tmp/tree/8
want_out '^two$' cubby exec box -- cat /tmp/tree/8/f7
want_status 0 cubby rm --force box
