#!/bin/sh
# Runs a program, else a root shell, on the virtual serial port called shell: the tests' hand inside of the box.
for port in /sys/class/virtio-ports/*; do
	if [ "$(cat "$port/name")" = shell ]; then
		exec "${@:-sh}" <>"/dev/${port##*/}" >&0 2>&1
	fi
done
echo "shell.sh: there is no such port" >&2
exit 1
