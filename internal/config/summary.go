package config

// JobSocket is the socket on which a job asks for its own account.
type JobSocket struct {
	Path        string `yaml:"path" check:"optionalpath" doc:"Path of a unix socket on which jobs ask for their own account, such as /run/cimeter/job.sock; mount its folder into jobs. Without one there is none. See docs/summary.md."`
	Mode        string `yaml:"mode" oneof:"0666 0660 0600" doc:"Mode of the socket's file. Jobs run as any user, and each is told of itself alone."`
	Pages       string `yaml:"pages" check:"address" doc:"Address at which people read cimeter's pages, for the link to a build's page. Default: server.url."`
	HistoryFile string `yaml:"history_token_file" check:"optionalpath" doc:"File of a token of the role read, by which the server of server.url is asked for a job's last builds. Default: the one of server.token_file. Must not be readable by everybody."`
}

func defaultJobSocket() JobSocket { return JobSocket{Mode: "0666"} }
