// Package appliance holds what the parts of Linerate have in common: the Events that tell of facts, the State they add
// up to, the Hub that owns the present State, and the Task, the one shape of everything that runs for long.
//
// # Flow
//
//	facts in                        one picture                       pictures out
//	netcfg.Watch   ─┐                                            ┌─>  display   (panel, terminal, PNG)
//	buttons        ─┤                                            ├─>  appliance/web  (API and its events)
//	config         ─┼──> Hub: Apply(State, Event) -> State ──────┼─>  appliance/leds
//	cpu            ─┤                                            └─>  systemd   (READY, STATUS, WATCHDOG)
//	engines        ─┘
//	                        ^                          |
//	                        └── runner: sees a request, drives an engine, stores the result, reports
//
// Facts go in, pictures come out, and nothing else connects two parts. Parts that act are level-triggered: they look at
// the State (a test is requested, a port is still a member of a bridge), act, and publish what they saw. So a skipped
// picture or a restarted Task does no harm.
//
// # Promises
//
// Apply is pure: it reads no clock and does no I/O; time comes in with the events. A State, once published, is never
// changed, nor is anything it points to: whoever builds the next one copies what differs.
//
// Publish never waits for a watcher. A slow watcher skips pictures and sees the newest one.
//
// This package imports nothing of Linux and no hardware, so its tests run anywhere.
package appliance
