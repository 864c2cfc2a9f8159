#!/bin/bash
# boxes with a network: what they reach, what they don't, and what is said about it
# modes: root userns
# seconds: 180
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up
netlab_host

t "the lab itself: the host reaches its internet, its LAN and itself"
want_out '^hello from inet www.example.com /x$' curl -sS --max-time 5 http://www.example.com/x
want_out '^hello from inet www.example.com /' curl -sS --max-time 5 --cacert "$NETLAB/ca.pem" https://www.example.com/
want_out '^hello from inet ' curl -sS --max-time 5 'http://[2001:db8::10]/'
want_out '^hello from inet ' curl -sS --max-time 5 http://six.example.com/
want_out '^hello from lan ' curl -sS --max-time 5 http://10.77.0.2/
want_out '^hello from lan ' curl -sS --max-time 5 http://169.254.169.254/
want_out '^hello from host ' curl -sS --max-time 5 http://127.0.0.1:8080/
want_out '^hello from host ' curl -sS --max-time 5 http://192.0.2.2:8080/
want_status 7 curl -sS --max-time 5 http://203.0.113.10:9/
want_status 28 curl -sS --max-time 1 http://203.0.113.66/
want_out '203.0.113.10' dig +short +tcp +time=2 +tries=1 www.example.com
