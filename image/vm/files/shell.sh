#!/bin/sh
# A root shell on the virtual serial port of that name: the tests' hand inside of the box.
for port in /sys/class/virtio-ports/*; do
	if [ "$(cat "$port/name")" = shell ]; then
		exec sh <>"/dev/${port##*/}" >&0 2>&1
	fi
done
echo "shell.sh: there is no such port" >&2
exit 1
