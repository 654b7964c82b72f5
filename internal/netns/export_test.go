package netns

// WithoutNetlink makes r as it is on a kernel without RTM_GETSTATS.
func (r *Reader) WithoutNetlink() {
	r.nl.close()
	r.nl = nil
}

// WithForeignPids makes r as it is when its proc shows another pid namespace.
func (r *Reader) WithForeignPids() { r.samePID = false }

// Unfinished begins a dump and leaves it.
func (r *Reader) Unfinished() error { return r.nl.dumpStats() }

// HoldSocket makes every refresh wait, as one does for the kernel's rtnl lock,
// until release is called.
func (r *Reader) HoldSocket() (release func()) {
	r.socket.Lock()
	return r.socket.Unlock
}

// Adopt has h counted by our end of other's uplink, as if it were taken for h's.
func (r *Reader) Adopt(h, other *Handle) error {
	r.socket.Lock()
	defer r.socket.Unlock()
	l := link{index: other.index.Load()}
	delete(r.byIndex, l.index)
	return r.adopt(h, l)
}
