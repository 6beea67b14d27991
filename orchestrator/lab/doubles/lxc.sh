# pct's hands in the real lab: Debian's LXC, as Proxmox VE uses its own.
CONFIGS=/etc/pve/lxc

need_root() { [ "$(id -u)" = 0 ] || die 255 "please run as root"; }

# The real one looks there too, so a container that is still starting counts as running.
is_running() { grep -q "@/var/lib/lxc/$1/command$" /proc/net/unix; }

attach() { # id, --keep-env or --clear-env, argv; no argv: a shell
    container=$1 environment=$2
    shift 2
    [ $# -gt 0 ] || exec lxc-attach -n "$container" "$environment"
    exec lxc-attach -n "$container" "$environment" -- "$@"
}

start() {
    # Distributions confine lxc-start by AppArmor to the paths of an ordinary installation.
    confinement=
    if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ] && command -v aa-exec >/dev/null; then
        confinement="aa-exec -p unconfined --"
    fi
    $confinement lxc-start -n "$1" -d -l INFO -o "/var/log/lxc-$1.log"
}
stop() { exec lxc-stop -n "$1" --kill; }
shutdown() { exec lxc-stop -n "$1" --nokill --timeout 60; }
