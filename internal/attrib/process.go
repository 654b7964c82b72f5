package attrib

import "github.com/cimeter/cimeter"

// By says what gives the segment its bounds, where it is not a container: before
// it is bound.
func (s *Segment) By(b cimeter.Boundary) { s.part.Source = b }

// boundary is what gives a part its bounds whose name nothing tells but what its
// segment is.
func (p *part) boundary() cimeter.Boundary {
	if p.Source != "" {
		return p.Source
	}
	return cimeter.BoundaryContainer
}
