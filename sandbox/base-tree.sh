#!/bin/sh
# Settles a base tree that mmdebstrap has just unpacked; $1 is the tree. Part of the recipe: any change here
# makes another tree. Never clear $1/dev: while this runs it shows the outer machine's own devices.
set -eu
tree=$1

chroot "$tree" update-ca-certificates

# Key only; the keys themselves come with each sandbox, so that a tree holds no secret.
cat >"$tree/etc/ssh/sshd_config.d/10-sandbox.conf" <<END
PermitRootLogin prohibit-password
PasswordAuthentication no
UseDNS no
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
END
rm -f "$tree"/etc/ssh/ssh_host_*

# The second login that many sites have instead of root: sudo without a password.
chroot "$tree" useradd --create-home --shell /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >"$tree/etc/sudoers.d/admin"
chmod 440 "$tree/etc/sudoers.d/admin"

# Both would wait for hardware that the machine does not have.
for unit in console-getty.service systemd-networkd-wait-online.service; do
    ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done

# Empty: each host draws its own id at its first boot, and gets its name from nspawn.
: >"$tree/etc/machine-id"
rm -f "$tree/etc/hostname"
