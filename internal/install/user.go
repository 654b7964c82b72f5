package install

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
)

// dockerGroup is the group that may use Docker's socket.
const dockerGroup = "docker"

// user makes the role's user where there is none, and returns the id of its
// group. Only a user that it makes joins the group docker: who took one out of
// it had a reason.
func (m *machine) user(o Options) (done []Step, group int, err error) {
	group, there, err := m.lookup("etc/group", o.Role.User)
	if err != nil {
		return nil, 0, err
	}
	_, known, err := m.lookup("etc/passwd", o.Role.User)
	if err != nil {
		return nil, 0, err
	}
	if known && there {
		return []Step{{"unchanged", "user " + o.Role.User}}, group, nil
	}
	if _, err := m.Stat("etc/passwd"); err != nil { // useradd would wait for a lock that it cannot make
		return nil, 0, fmt.Errorf("install: root %s: want a machine's root folder, with its etc/passwd: %w", m.Name(), err)
	}
	args := []string{"--system", "--home-dir", o.Role.Home, "--no-create-home", "--shell", "/usr/sbin/nologin"}
	if there {
		args = append(args, "--gid", o.Role.User)
	} else {
		args = append(args, "--user-group")
	}
	text := "user " + o.Role.User
	_, docker, err := m.lookup("etc/group", dockerGroup)
	if err != nil {
		return nil, 0, err
	}
	if o.Role.Docker && docker {
		args = append(args, "--groups", dockerGroup)
		text += ", of the group docker, whose socket it reads"
	}
	if o.Root != "" && o.Root != "/" {
		args = append(args, "--prefix", o.Root)
	}
	out, err := exec.Command("useradd", append(args, o.Role.User)...).CombinedOutput()
	if err != nil {
		return nil, 0, fmt.Errorf("make user %s: useradd: %w: %s", o.Role.User, err, strings.TrimSpace(string(out)))
	}
	done = append(done, Step{"made", text})
	if o.Role.Docker && !docker {
		done = append(done, Step{"missing", "group docker: when Docker is there, usermod -aG docker " + o.Role.User})
	}
	group, there, err = m.lookup("etc/group", o.Role.User)
	if err == nil && !there {
		err = fmt.Errorf("make user %s: useradd made no group of that name", o.Role.User)
	}
	return done, group, err
}

// lookup returns the id in the third field of a name's line in etc/passwd or
// etc/group.
func (m *machine) lookup(file, name string) (id int, ok bool, err error) {
	f, err := m.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("install: %w", err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Split(s.Text(), ":")
		if len(fields) < 3 || fields[0] != name {
			continue
		}
		if id, err = strconv.Atoi(fields[2]); err != nil {
			return 0, false, fmt.Errorf("install: /%s: id of %s: %w", file, name, err)
		}
		return id, true, nil
	}
	if err := s.Err(); err != nil {
		return 0, false, fmt.Errorf("install: /%s: %w", file, err)
	}
	return 0, false, nil
}
