package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCmd prints a completion script.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is the end of --help.
func (c *completionCmd) Help() string { return completionHelp }

// Run prints the script.
func (c *completionCmd) Run(e *env) error {
	words := completions(e.parser.Model)
	switch c.Shell {
	case "bash":
		return bashCompletion(e.stdout, words)
	case "zsh":
		return zshCompletion(e.stdout, words)
	}
	return fishCompletion(e.stdout, words)
}

// subcommand is a sub-command as a shell completes it; the first of completions
// is cimeter itself.
type subcommand struct {
	name, help string
	flags      []flagWord
	args       []string // values of its first argument, where they are few
	runs       bool     // its arguments are a command of its own
	files      bool     // its arguments are paths
}

type flagWord struct {
	name, help string   // with --
	values     []string // where they are few
	file       bool     // its value is a path
	bare       bool     // takes no value
}

func completions(m *kong.Application) []subcommand {
	empty := func(s string) bool { return s == "" }
	words := func(n *kong.Node) subcommand {
		c := subcommand{name: n.Name, help: n.Help}
		flags := n.Flags
		for _, sub := range n.Children { // of store: what one of its own takes, all are offered
			if n == m.Node {
				break
			}
			c.args = append(c.args, sub.Name)
			for _, p := range sub.Positional {
				c.files = c.files || p.Tag.Type == "path"
			}
			for _, f := range sub.Flags {
				if !slices.ContainsFunc(flags, func(g *kong.Flag) bool { return g.Name == f.Name }) {
					flags = append(slices.Clip(flags), f)
				}
			}
		}
		for _, f := range flags {
			w := flagWord{name: "--" + f.Name, help: f.Help, bare: f.IsBool(), file: f.Tag.Type == "path"}
			w.values = slices.DeleteFunc(f.EnumSlice(), empty)
			c.flags = append(c.flags, w)
		}
		for _, p := range n.Positional {
			c.args = append(c.args, slices.DeleteFunc(p.EnumSlice(), empty)...)
			c.runs = c.runs || p.Passthrough
			c.files = c.files || p.Tag.Type == "path"
		}
		return c
	}
	top := words(m.Node)
	all := []subcommand{top}
	for _, n := range m.Children {
		c := words(n)
		c.flags = append(slices.Clone(top.flags), c.flags...)
		all = append(all, c)
		all[0].args = append(all[0].args, c.name)
	}
	return all
}

func bashCompletion(w io.Writer, cs []subcommand) error {
	var b strings.Builder
	b.WriteString(`# bash completion of cimeter: source <(cimeter completion bash)
_cimeter() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd= i words more=
	if [[ $cur == = ]]; then
		cur=
	elif [[ $prev == = ]]; then
		prev=${COMP_WORDS[COMP_CWORD-2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--)
			if declare -F _command_offset >/dev/null; then
				_command_offset $((i + 1))
			else
				COMPREPLY=($(compgen -A command -A file -- "$cur"))
			fi
			return
			;;
`)
	fmt.Fprintf(&b, "\t\t%s) [[ $cmd ]] || cmd=${COMP_WORDS[i]} ;;\n\t\tesac\n\tdone\n\tcase \"$cmd $prev\" in\n", strings.Join(cs[0].args, " | "))
	for i, c := range cs {
		flags, pattern := c.flags, `"`+c.name+` %s"`
		if i == 0 {
			pattern = `*" %s"` // before and after the sub-command
		} else {
			flags = flags[len(cs[0].flags):]
		}
		for _, f := range flags {
			reply := "COMPREPLY=()"
			switch {
			case f.bare:
				continue
			case f.file:
				reply = `COMPREPLY=($(compgen -f -- "$cur"))`
			case len(f.values) > 0:
				reply = fmt.Sprintf(`COMPREPLY=($(compgen -W "%s" -- "$cur"))`, strings.Join(f.values, " "))
			}
			fmt.Fprintf(&b, "\t"+pattern+") %s; return ;;\n", f.name, reply)
		}
	}
	b.WriteString("\tesac\n\tcase $cmd in\n")
	for i, c := range cs {
		pattern, words := c.name, slices.Clone(c.args)
		if i == 0 {
			pattern = "''"
		}
		for _, f := range c.flags {
			words = append(words, f.name)
		}
		more := ""
		switch {
		case c.runs: // with or without -- before it
			more = " more=command"
		case c.files && len(c.args) > 0: // of one of its own
			more = "; [[ $prev == " + c.name + " ]] || more=file"
		case c.files:
			more = " more=file"
		}
		fmt.Fprintf(&b, "\t%s) words=\"%s\"%s ;;\n", pattern, strings.Join(words, " "), more)
	}
	b.WriteString("\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" ${more:+-A $more} -- \"$cur\"))\n}\ncomplete -F _cimeter cimeter\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func zshCompletion(w io.Writer, cs []subcommand) error {
	quote := strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace
	var b strings.Builder
	b.WriteString("#compdef cimeter\n# zsh completion of cimeter: cimeter completion zsh > \"${fpath[1]}/_cimeter\"\n_cimeter() {\n\tlocal state line\n\t_arguments -C \\\n")
	arguments := func(c subcommand) {
		for _, f := range c.flags {
			switch {
			case f.bare:
				fmt.Fprintf(&b, "\t\t'%s[%s]' \\\n", f.name, quote(f.help))
			case f.file:
				fmt.Fprintf(&b, "\t\t'%s=[%s]:file:_files' \\\n", f.name, quote(f.help))
			default:
				fmt.Fprintf(&b, "\t\t'%s=[%s]:value:(%s)' \\\n", f.name, quote(f.help), strings.Join(f.values, " "))
			}
		}
	}
	arguments(cs[0])
	b.WriteString("\t\t'1: :->command' '*:: :->rest'\n\tcase $state in\n\tcommand)\n\t\t_values command \\\n")
	for _, c := range cs[1:] {
		fmt.Fprintf(&b, "\t\t\t'%s[%s]' \\\n", c.name, quote(c.help))
	}
	b.WriteString("\t\t;;\n\trest)\n\t\tcase $line[1] in\n")
	for _, c := range cs[1:] {
		fmt.Fprintf(&b, "\t\t%s) _arguments -S \\\n", c.name)
		arguments(c)
		switch {
		case c.runs:
			b.WriteString("\t\t'*::command:{ if [[ $words[1] == -- ]]; then shift words; ((CURRENT--)); fi; _normal }' ;;\n")
		case c.files && len(c.args) > 0:
			fmt.Fprintf(&b, "\t\t'1:argument:(%s)' '*:file:_files' ;;\n", strings.Join(c.args, " "))
		case c.files:
			b.WriteString("\t\t'*:file:_files' ;;\n")
		default:
			fmt.Fprintf(&b, "\t\t'1:argument:(%s)' ;;\n", strings.Join(c.args, " "))
		}
	}
	// Loaded from $fpath the file is the function, and is called at once.
	b.WriteString("\t\tesac ;;\n\tesac\n}\nif [[ $funcstack[1] == _cimeter ]]; then\n\t_cimeter \"$@\"\nelse\n\tcompdef _cimeter cimeter\nfi\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func fishCompletion(w io.Writer, cs []subcommand) error {
	quote := strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace
	var b strings.Builder
	b.WriteString("# fish completion of cimeter: cimeter completion fish > ~/.config/fish/completions/cimeter.fish\ncomplete -c cimeter -f\n")
	for i, c := range cs {
		when := "__fish_seen_subcommand_from " + c.name
		if i == 0 {
			when = "__fish_use_subcommand"
			for _, sub := range cs[1:] {
				fmt.Fprintf(&b, "complete -c cimeter -n '%s' -a %s -d '%s'\n", when, sub.name, quote(sub.help))
			}
		} else if len(c.args) > 0 {
			fmt.Fprintf(&b, "complete -c cimeter -n '%s' -a '%s'\n", when, strings.Join(c.args, " "))
		}
		switch {
		case c.runs:
			var valued []string
			for _, f := range c.flags {
				if !f.bare {
					valued = append(valued, f.name)
				}
			}
			fmt.Fprintf(&b, "complete -c cimeter -n '%s' -x -a '(__fish_complete_subcommand --fcs-skip=2 -- %s)'\n", when, strings.Join(valued, " "))
		case c.files && len(c.args) > 0:
			fmt.Fprintf(&b, "complete -c cimeter -n '%s; and __fish_seen_subcommand_from %s' -F\n", when, strings.Join(c.args, " "))
		case c.files:
			fmt.Fprintf(&b, "complete -c cimeter -n '%s' -F\n", when)
		}
		for _, f := range c.flags {
			fmt.Fprintf(&b, "complete -c cimeter -n '%s' -l %s -d '%s'", when, strings.TrimPrefix(f.name, "--"), quote(f.help))
			switch {
			case f.file:
				b.WriteString(" -r -F")
			case len(f.values) > 0:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(f.values, " "))
			case !f.bare:
				b.WriteString(" -x")
			}
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
