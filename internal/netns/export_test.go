package netns

// WithoutNetlink makes r as it is on a kernel without RTM_GETSTATS.
func (r *Reader) WithoutNetlink() {
	r.nl.close()
	r.nl = nil
}

// WithForeignPids makes r as it is when its proc shows another pid namespace.
func (r *Reader) WithForeignPids() { r.samePID = false }

// TakeKey gives h's place to the namespace of o, as if the kernel had used h's
// number again for it.
func (h *Handle) TakeKey(o *Handle) {
	delete(h.r.byKey, h.key)
	h.key = o.key
	o.Close()
	h.r.byKey[h.key] = h
}

// Unfinished begins a dump and leaves it.
func (r *Reader) Unfinished() error { return r.nl.dumpStats() }
