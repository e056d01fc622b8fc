# scripts/test-systemd and scripts/test-package source this file. It starts a systemd in new namespaces, whatever
# this host's init is, and changes nothing in the host's files, services, network or firewall. The script runs
# itself twice: with --private, then with --init in the new namespaces.
source scripts/packages.bash
boot_deadline_s=60

# The host does not see the mounts, and they end with the last process of the namespace.
make_private() {
    if [[ $EUID -ne 0 ]]; then
        echo "$0: run it as root (sudo $0): it makes namespaces and mounts" >&2
        exit 1
    fi
    exec unshare --mount --propagation slave "$0" --private "$@"
}

# Makes a folder in memory, for all files that are written, and a control group.
make_own() {
    install_missing systemd
    own=$(mktemp -d /tmp/drld.XXXXXX)
    mount -t tmpfs -o mode=755 tmpfs "$own"
    mkdir "$own/cgroup"
    mount -t cgroup2 cgroup2 "$own/cgroup"
    group=$own/cgroup/drldt-$$
    machine=
    trap finish EXIT
    trap 'exit 130' INT TERM HUP
    mkdir "$group"
}

finish() {
    # When an init ends, the kernel ends all processes of its namespace.
    [[ -z $machine ]] || kill -KILL "$machine" 2>/dev/null || true
    [[ -z $machine ]] || wait "$machine" 2>/dev/null || true
    until find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; do sleep 0.1; done
    umount --recursive "$own"
    rmdir "$own"
}

# Starts the machine (`$0 --init OWN` must end in start_systemd) and waits for it.
boot() {
    bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' bash "$group" \
        unshare --mount --pid --fork --kill-child --net --uts --ipc --cgroup \
        "$PWD/scripts/${0##*/}" --init "$own" >"$own/console" 2>&1 &
    machine=$!
    local started=$SECONDS
    until init=$(cat "/proc/$machine/task/$machine/children") && init=${init% } && [[ -n $init ]] &&
        [[ $(inside systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]; do
        if ((SECONDS - started > boot_deadline_s)) || [[ ! -e /proc/$machine ]]; then
            cat "$own/console" >&2
            say "systemd did not start"
            exit 1
        fi
        sleep 0.1
    done
}

inside() { nsenter --target "$init" --root --mount --pid --net --uts --ipc --cgroup "$@"; }

# mount_kernel ROOT FOLDER...: mounts the kernel's file systems, makes devices, and puts the folders into memory.
mount_kernel() {
    local root=$1 directory device
    mount -t proc proc "$root/proc"
    mount --bind "$root/proc/sys" "$root/proc/sys" -o ro
    mount -t sysfs sysfs "$root/sys" -o ro
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    for directory in "${@:2}"; do
        mount -t tmpfs -o mode=755 tmpfs "$root/$directory"
    done
    for device in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
    done
    mknod -m 666 "$root/dev/tty" c 5 0
    mkdir "$root"/dev/{pts,shm}
    mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=666
    mount -t tmpfs tmpfs "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    chmod 1777 "$root/tmp"
}

# quiet_units ROOT NONE: lets the journal start and no other unit. NONE is an empty folder, which hides the others.
quiet_units() {
    local root=$1 none=$2 directory
    rm -rf "$root"/etc/fstab "$root"/etc/systemd/{system,system.conf.d,journald.conf.d}
    mkdir -p "$root/etc/systemd/system/sockets.target.wants"
    ln -s /lib/systemd/system/systemd-journald.socket "$root/etc/systemd/system/sockets.target.wants"
    for directory in "$root"/usr/lib/systemd/system/*.wants "$root/usr/lib/systemd/system-generators"; do
        mount --bind "$none" "$directory"
    done
}

enter_root() {
    cd "$1"
    mkdir run/host
    pivot_root . run/host
    umount --lazy run/host
    ip link set lo up
}

start_systemd() {
    exec env -i container=drld PATH="$PATH" /lib/systemd/systemd --system --unit=multi-user.target
}
