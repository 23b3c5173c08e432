#!/bin/bash
# Makes the root file system of a kind node from Debian packages: build.sh TREE SUITE MIRROR KIND_FILES PROGRAMS NODE_FILES
# Runs in mount and process namespaces of its own, so that whatever debootstrap mounts ends with it.
set -euo pipefail
tree=$1 suite=$2 mirror=$3 kind_files=$4 programs=$5 node_files=$6

# What kind's own base image installs, as far as nodes without NFS, iSCSI and user namespaces need it; containerd, runc and plugins from Debian.
packages=systemd,systemd-sysv,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod,pigz,ca-certificates,curl,jq,procps,busybox-static,containerd,runc,containernetworking-plugins
debootstrap --variant=minbase --include="$packages" "$suite" "$tree" "$mirror" >&2

cp -r "$kind_files"/. "$tree"/
chmod 755 "$tree"/kind/bin/* "$tree"/usr/local/bin/*   # Go module archives lose the bit
install -m 755 "$programs"/kubelet "$programs"/kubeadm "$programs"/kubectl "$tree"/usr/bin/
for program in containerd ctr containerd-shim-runc-v2; do ln -s "/usr/bin/$program" "$tree/usr/local/bin/$program"; done
ln -s /usr/sbin/runc "$tree/usr/local/sbin/runc"
mkdir -p "$tree"/opt/cni "$tree"/etc/kubernetes/manifests "$tree"/kind/images "$tree"/kind/manifests "$tree"/etc/cni/net.d
rm -rf "$tree"/opt/cni/bin && ln -s /usr/lib/cni "$tree"/opt/cni/bin

# Ours: no limits and no negative OOM scores, which take CAP_SYS_RESOURCE; the cgroupfs driver, as the hierarchy may be hybrid.
sed -i -e '/^Limit/d' -e '/^OOMScoreAdjust/d' "$tree"/etc/systemd/system/containerd.service
install -m 644 "$node_files"/containerd.toml "$tree"/etc/containerd/config.toml
install -m 644 "$node_files"/*.service "$tree"/etc/systemd/system/
install -m 755 "$node_files"/pod-network.sh "$tree"/kind/bin/pod-network
install -m 755 "$node_files"/import-images.sh "$tree"/kind/bin/import-images

chroot "$tree" /bin/bash -euo pipefail <<'INSIDE'
# As in kind's base image: no unit that belongs to a machine of its own.
rm -f /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service /lib/systemd/system/multi-user.target.wants/* \
  /etc/systemd/system/*.wants/* /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/basic.target.wants/* \
  /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl*
echo "ReadKMsg=no" >> /etc/systemd/journald.conf
systemctl enable kubelet containerd undo-mount-hacks import-images pod-network 2>/dev/null
systemctl mask systemd-binfmt systemd-sysctl 2>/dev/null
ctr oci spec | jq '.hooks.createContainer = [{"path": "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' > /etc/containerd/cri-base.json
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/*
INSIDE
