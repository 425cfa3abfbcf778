#!/bin/busybox sh
# The first program of a virtual machine: loads modules, then starts the system on the disk, else /start.
/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
while read -r module; do
	insmod "$module" || echo "init: $module is not loaded"
done </modules
if [ -x /start ]; then
	exec /start
fi
mkdir -p /new
mount -t ext4 /dev/vda /new || exec poweroff -f
mount --move /dev /new/dev
mount --move /sys /new/sys
mount --move /proc /new/proc
exec switch_root /new /sbin/init
