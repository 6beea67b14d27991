#!/bin/sh
# Proxmox's `pct exec` and its refusals, for the transports' contract: no container, only its way of being called.
# Rule: anything else is an error. STATE holds <id>.conf (exists), <id>.running (runs), starts (one line a call).
STATE=@STATE@
echo "$1 $2" >>"$STATE/starts"
PATH=/sbin:/bin:/usr/sbin:/usr/bin
export PATH

die() { # code, text
    printf '%s\n' "$2" >&2
    exit "$1"
}

[ "$1" = exec ] && [ "$3" = -- ] || die 255 "400 unable to parse option"
id=$2
shift 3
[ -e "$STATE/$id.conf" ] || die 2 "Configuration file 'nodes/pve/lxc/$id.conf' does not exist"
[ -e "$STATE/$id.running" ] || die 255 "container '$id' not running!"
[ $# -gt 0 ] || die 255 "missing command"
unset SSL_CERT_FILE SSL_CERT_DIR
exec "$@"
