#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# RUN-08: archives that are small and unpack to more than there is room for
# modes: root userns
# seconds: 120
. "${TEST_LIB:?}/box.bash"
need_template tiny
W=$LAB/work small=$LAB/work/small
CALL_SECONDS=40
cub() { timeout -k 2 "$CALL_SECONDS" cubby --state-dir "$small/state" --run-dir "$W/run2" "$@"; }
used() { df --output=used,iused "$small" | tail -n 1 | tr -s ' '; }
close_to() {	# close_to "KIB INODES" "KIB INODES": what a log or the database takes is no leftover
	local -a a b
	read -r -a a <<<"$1"
	read -r -a b <<<"$2"
	((b[0] - a[0] < 1024 && b[1] - a[1] < 40))
}

mkdir -p "$small" "$W/bombs"
t "the disk of the state directory is a small one, and an ordinary archive fits"
if ! mount -t tmpfs -o size=60m,nr_inodes=6000 none "$small" 2>/dev/null; then
	skip "no tmpfs can be mounted here"
	exit 0
fi
(cd "$TINY" && tar -cf "$W/bombs/good.tar" .)
want_status 0 cub template create good "tar:$W/bombs/good.tar"
want_status 0 cub template rm --force good
want_soon 5 sh -c "! ls -d $small/state/building/-gone.* 2>/dev/null"
before=$(used)

python3 - "$W/bombs" <<-'EOT' || exit 1
	import gzip, io, sys, tarfile

	def make(name, members):
	    with gzip.open("%s/%s.tar.gz" % (sys.argv[1], name), "wb", 1) as z, tarfile.open(fileobj=z, mode="w", format=tarfile.PAX_FORMAT) as t:
	        for info, data in members:
	            t.addfile(info, data)

	class Zeros(io.RawIOBase):
	    def read(self, n=-1):
	        return bytes(n)

	def member(name, size=0, **pax):
	    i = tarfile.TarInfo(name)
	    i.size, i.pax_headers = size, {k.replace("__", "."): v for k, v in pax.items()}
	    return i, Zeros() if size else None

	make("bytes", [member("zeros", 400 << 20)])
	make("inodes", (member("f%d" % k) for k in range(50000)))
	make("xattr", [member("x", SCHILY__xattr__user__big="a" * (100 << 20))])
	make("xattrs", (member("x%d" % k, SCHILY__xattr__user__a="a" * 60000) for k in range(3000)))
	make("deep", [member("d/" * 3000 + "f")])
EOT
truncate -s 1T "$W/bombs/hole" && tar -C "$W/bombs" -Scf "$W/bombs/claim.tar" hole
rm -f "$W/bombs/hole"

for kind in bytes.tar.gz inodes.tar.gz xattr.tar.gz xattrs.tar.gz deep.tar.gz claim.tar; do
	t "RUN-08 $kind: refused with the cause, the disk is as before, and the daemon answers"
	want "$(stat -c %s "$W/bombs/$kind")" -lt 4000000
	call cub template create bomb "tar:$W/bombs/$kind"
	case $kind in
	bytes* | inodes*) why='full|[Nn]o space' ;;
	deep*) why='deep' ;;
	claim*) why='more than' ;;
	xattr*) why='' ;; # attributes may be left out, and what remains is small
	esac
	if [[ -n $why ]]; then
		want "$STATUS" = 1
		want "$(grep -cE "$why" <<<"$ERR")" = 1
	else
		want "$STATUS" -le 1
	fi
	((_bad)) && _show
	want_status 0 cub ls
	call cub template rm --force bomb
	want_soon 10 sh -c "! ls -d $small/state/building/-gone.* 2>/dev/null"
	want_status 0 close_to "$before" "$(used)"
done

t "an ordinary archive fits afterwards"
want_status 0 cub template create good "tar:$W/bombs/good.tar"
cub config --stop-daemon </dev/null >/dev/null 2>&1
want_soon 5 umount "$small"
rm -rf "$W/run2"
