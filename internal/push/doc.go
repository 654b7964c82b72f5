// Package push is the role that sends an agent's finished records and
// heartbeats to a server.
//
// It owns two goroutines, one for records and one for heartbeats, their
// schedule, and every retry: adapters make one try each. A record leaves the
// spool when the server has said that it is durable, or goes to the spool's
// folder of refused ones when the server has said that it never will be;
// everything else is tried again, later and spread at random. It never holds
// up metering: what is finished goes into the spool by [Pusher.Before] and
// waits there.
//
// Start with [New], then [Pusher.Run]. Ready may be called at any time.
package push
