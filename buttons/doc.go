// Package buttons turns what happens at the keys of the box into presses: [Task] publishes appliance.ButtonPressed.
//
// # Where keys come from
//
// Input devices of the kernel (evdev, /dev/input/event*), GPIO lines (through periph), and a terminal's keyboard
// ([Keyboard]). What a key means stands in the board's profile; a keypad plugged in by a person has the meaning that is
// printed on its keys.
//
// Of the input devices only these are taken, and then for the box alone (EVIOCGRAB), so that no console and no other
// program acts on the same press: the ones the profile names, gpio-keys and adc-keys, keypads on USB or Bluetooth that
// have no letter keys and are no part of a keyboard that has, and whatever [buttons] devices names. A device that also
// carries a key of the system's (KEY_POWER, KEY_SLEEP, KEY_WAKEUP) is read but not taken.
//
// # Presses
//
// [Contact] is the pure core, one for each key: edges in, presses out. A key with one meaning fires when it goes down. A
// key with a long meaning too fires when it is let go, or, held for [LongPress], at that moment. Nothing repeats while a
// key is held. A key that is down when it is first seen is no press, and one that is held for [StuckAfter] is a fault
// until it is let go.
//
// # Promises
//
// The order of presses is that of the edges as they were read. Devices and lines are opened and closed by the Task alone,
// and all of them are let go when it ends. A device that comes or goes is seen at once (fsnotify), or after ten seconds
// at the latest. What cannot be opened is said once, is a fault, and is tried again; no keys at all are said once and
// are no fault: the box works without.
//
// The evdev part has run against the kernel's own input devices (uinput, Linux 6.1 on x86-64); no key and no GPIO line of
// a real board has been tried.
package buttons
