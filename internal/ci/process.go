package ci

import "github.com/cimeter/cimeter"

// ProcessIdentifier tells from variables of a process that runs in no container
// which build it belongs to. ok is false when it is of no build of this CI
// system. The identity's Group is not set: the runner above the process is that.
type ProcessIdentifier func(env map[string]string) (id cimeter.Identity, ok bool)

// FirstProcess returns a ProcessIdentifier that asks ids in order and takes the
// first answer, with the bounds of [First].
func FirstProcess(ids ...ProcessIdentifier) ProcessIdentifier {
	return func(env map[string]string) (cimeter.Identity, bool) {
		if len(env) == 0 {
			return cimeter.Identity{}, false
		}
		for _, identify := range ids {
			if id, ok := identify(env); ok && len(id.Build.Key) <= maxKey {
				bound(&id)
				return id, true
			}
		}
		return cimeter.Identity{}, false
	}
}
