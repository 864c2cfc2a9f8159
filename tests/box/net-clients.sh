#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
# programs that people use in boxes, against servers of a small internet, under a list with one name: curl, git, apt, npm, ssh
# modes: root
# seconds: 180
# shellcheck disable=SC2034 # for box.bash
CALL_SECONDS=60
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up

WWW=$LAB/work/www
mkdir -p "$WWW"
in_inet ip addr add 203.0.113.12/32 dev lo
netlab_name "repo.example.com A 300 203.0.113.12"
cat >"$LAB/work/www.py" <<'PY'
import functools, http.server, os, ssl, sys, threading
class Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words):
        pass
handler = functools.partial(Files, directory=sys.argv[1])
for port in (80, 443):
    s = http.server.ThreadingHTTPServer(("203.0.113.12", port), handler)
    if port == 443:
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        c.load_cert_chain(sys.argv[2])
        s.socket = c.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=s.serve_forever, daemon=True).start()
open(sys.argv[1] + "/ready", "w").close()
while os.read(0, 4096):
    pass
PY
in_inet /usr/bin/python3 "$LAB/work/www.py" "$WWW" "$NETLAB/server.pem" <"$NETLAB/life" >"$LAB/work/www.log" 2>&1 9>&- &
NETLAB_PIDS+=($!)
for ((i = 0; i < 500; i++)); do
	[[ -e $WWW/ready ]] && break
	sleep 0.01
done

t "a box of this machine's own tools is made"
umount /etc/passwd /etc/group	# with the lab's own users: a template takes no file of another file system
want_status 0 cubby template create host
want_status 0 cubby new --quiet --template host --net repo.example.com b
want_status 0 cubby cp "$NETLAB/ca.pem" b:/tmp/ca.pem
box() { timeout -k 2 60 cubby exec b -- sh -ec "$1" </dev/null; }

t "curl: http and https with a certificate of its own authority, whole files, and no other name"
head -c 3000000 /dev/urandom >"$WWW/file"
sum=$(sha256sum <"$WWW/file")
want_out "^${sum%% *}" box 'curl -sS --max-time 20 http://repo.example.com/file | sha256sum'
want_out "^${sum%% *}" box 'curl -sS --max-time 20 --cacert /tmp/ca.pem https://repo.example.com/file | sha256sum'
call box 'curl -sS --max-time 20 https://repo.example.com/file >/dev/null'
want "$STATUS" = 60	# without the authority
call box 'curl -sS --max-time 5 http://www.example.com/'
want "$STATUS" = 6
call box 'curl -sS --max-time 5 -k --resolve other.example.com:443:203.0.113.12 https://other.example.com/file >/dev/null'
want "$STATUS" != 0

t "git: a clone over https and over its own protocol, and none of a name that isn't on the list"
if ! command -v git >/dev/null; then
	skip "git isn't installed"
else
	export GIT_CONFIG_GLOBAL=/dev/null
	want_status 0 git init -q -b main "$LAB/work/tree"
	echo 'some content' >"$LAB/work/tree/file"
	want_status 0 git -C "$LAB/work/tree" add file
	want_status 0 git -C "$LAB/work/tree" -c user.name=a -c user.email=a@example.com commit -qm first
	want_status 0 git clone -q --bare "$LAB/work/tree" "$WWW/tree.git"
	want_status 0 git -C "$WWW/tree.git" update-server-info
	nsenter --net="/proc/$NETLAB_INET/ns/net" -- "$(git --exec-path)/git-daemon" --reuseaddr --export-all --base-path="$WWW" --listen=203.0.113.12 "$WWW" >"$LAB/work/git.log" 2>&1 9>&- &
	NETLAB_PIDS+=($!)
	want_out '^some content$' box 'cd /tmp && GIT_SSL_CAINFO=/tmp/ca.pem git clone -q https://repo.example.com/tree.git over-https && cat over-https/file'
	want_soon 5 box 'cd /tmp && rm -rf over-git && git clone -q git://repo.example.com/tree.git over-git && grep -q "some content" over-git/file'
	call box 'cd /tmp && git clone -q https://www.example.com/tree.git no'
	want "$STATUS" = 128
	want_out 'resolve host' printf '%s\n' "$ERR"
fi

t "apt: a package from a repository"
if ! command -v dpkg-scanpackages >/dev/null || ! command -v apt-get >/dev/null; then
	skip "apt or dpkg-dev isn't installed"
else
	mkdir -p "$LAB/work/deb/DEBIAN" "$LAB/work/deb/usr/share/netlab" "$WWW/deb"
	printf 'Package: netlab\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: a test\n' >"$LAB/work/deb/DEBIAN/control"
	echo 'from the package' >"$LAB/work/deb/usr/share/netlab/file"
	want_status 0 dpkg-deb -b "$LAB/work/deb" "$WWW/deb/netlab_1.0_all.deb"
	want_status 0 sh -c "cd '$WWW/deb' && dpkg-scanpackages . >Packages"
	# shellcheck disable=SC2016
	apt='mkdir -p /tmp/apt/lists/partial /tmp/apt/cache/archives/partial && cd /tmp/apt && echo "deb [trusted=yes] $SITE/deb ./" >list &&
		o="-oDir::Etc::SourceList=/tmp/apt/list -oDir::Etc::SourceParts=/dev/null -oDir::State::Lists=/tmp/apt/lists -oDir::Cache=/tmp/apt/cache
			-oAcquire::https::CaInfo=/tmp/ca.pem -oAPT::Sandbox::User= -oAcquire::Retries=0 -oAcquire::Languages=none" &&
		apt-get $o -qq update && apt-get $o -qq download netlab && dpkg-deb --fsys-tarfile netlab_1.0_all.deb | tar -xOf - ./usr/share/netlab/file'
	want_out 'from the package' box "SITE=http://repo.example.com; $apt"
	want_out 'from the package' box "rm -rf /tmp/apt; SITE=https://repo.example.com; $apt"
	call box "rm -rf /tmp/apt; SITE=http://www.example.com; $apt"
	want "$STATUS" != 0
	want_out 'resolve' printf '%s\n' "$ERR"
fi

t "npm: a package from a registry"
if ! command -v npm >/dev/null; then
	skip "npm isn't installed"
else
	mkdir -p "$LAB/work/npm/package" "$WWW/netlab-tiny" "$WWW/npm"
	printf '{"name":"netlab-tiny","version":"1.0.0","main":"index.js"}\n' >"$LAB/work/npm/package/package.json"
	printf 'module.exports = "from the registry";\n' >"$LAB/work/npm/package/index.js"
	want_status 0 tar -C "$LAB/work/npm" -czf "$WWW/npm/netlab-tiny-1.0.0.tgz" package
	rmdir "$WWW/netlab-tiny"
	sha=$(sha1sum "$WWW/npm/netlab-tiny-1.0.0.tgz")
	printf '{"name":"netlab-tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"netlab-tiny","version":"1.0.0","dist":{"tarball":"https://repo.example.com/npm/netlab-tiny-1.0.0.tgz","shasum":"%s"}}}}' \
		"${sha%% *}" >"$WWW/netlab-tiny"
	npm='rm -rf /tmp/npm && mkdir -p /tmp/npm && cd /tmp/npm && echo "{}" >package.json && export npm_config_cache=/tmp/npm/cache npm_config_update_notifier=false &&
		npm install --cafile=/tmp/ca.pem --no-audit --no-fund --fetch-retries=0 --loglevel=error --registry'
	want_out 'from the registry' box "$npm https://repo.example.com/ netlab-tiny@1.0.0 >/dev/null && node -p 'require(\"netlab-tiny\")'"
	call box "$npm https://www.example.com/ netlab-tiny@1.0.0"
	want "$STATUS" != 0
	want_out 'ENOTFOUND|getaddrinfo' printf '%s\n' "$ERR"
fi

t "git over ssh"
sshd=$(command -v sshd || ls /usr/sbin/sshd 2>/dev/null)
if [[ -z $sshd ]] || ! command -v git ssh ssh-keygen >/dev/null; then
	skip "no ssh server is installed (openssh-server)"
else
	mkdir -p /run/sshd "$LAB/work/ssh"
	chmod 0755 "$LAB" "$LAB/work"
	want_status 0 ssh-keygen -q -t ed25519 -N '' -f "$LAB/work/ssh/host"
	want_status 0 ssh-keygen -q -t ed25519 -N '' -f "$LAB/work/ssh/key"
	cp "$LAB/work/ssh/key.pub" "$LAB/work/ssh/authorized"
	nsenter --net="/proc/$NETLAB_INET/ns/net" -- "$sshd" -D -e -f /dev/null -h "$LAB/work/ssh/host" -o ListenAddress=203.0.113.12 -o PidFile=none -o UsePAM=no -o StrictModes=no \
		-o AuthorizedKeysFile="$LAB/work/ssh/authorized" -o PermitRootLogin=yes >"$LAB/work/sshd.log" 2>&1 9>&- &
	NETLAB_PIDS+=($!)
	want_status 0 cubby cp "$LAB/work/ssh/key" b:/tmp/key
	want_soon 10 in_inet bash -c ': </dev/tcp/203.0.113.12/22'
	want_status 0 box 'chmod 600 /tmp/key; cd /tmp &&
		GIT_SSH_COMMAND="ssh -i /tmp/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes" \
		git clone -q "ssh://root@repo.example.com'"$WWW"'/tree.git" over-ssh && grep -q "some content" over-ssh/file'
fi

t "what they did is in the log, by name"
want_soon 5 sh -c "cubby net log b | grep -q 'allowed.*repo.example.com.*port 443'"
want_out 'www.example.com' cubby net log b
