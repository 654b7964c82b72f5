package main

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
)

// sending is what an agent sends its records with. A nil one sends nothing.
type sending struct {
	*push.Pusher
	spool *spool.Spool
	close func()
}

// openSending opens the spool and the way to the server of the settings; nil
// where they name none.
func openSending(conf config.Config, e *env, counts *tally.Table, tell telling, log *slog.Logger) (*sending, error) {
	if conf.Server.URL == "" {
		return nil, nil
	}
	queue, err := openSpool(conf)
	if err != nil {
		return nil, err
	}
	sender, err := newSender(conf, e, queue.ID())
	if err != nil {
		queue.Close()
		return nil, err
	}
	log.Info("sending records", "server", sender.Address(), "waiting", queue.Stats().Records)
	return newSending(conf, queue, sender, sender.Close, counts, tell, log), nil
}

// newSender is the way to the server of the settings, of the agent of that id.
func newSender(conf config.Config, e *env, agent string) (*push.Sender, error) {
	return push.NewSender(push.SenderOptions{
		URL: conf.Server.URL, CAFile: conf.Server.CAFile, Agent: agent,
		Token: func() (string, error) {
			token, err := config.ReadSecret("CIMETER_SERVER_TOKEN", conf.Server.TokenFile, e.getenv)
			return token.Reveal(), err
		},
	})
}

func openSpool(conf config.Config) (*spool.Spool, error) {
	return spool.Open(spool.Options{Dir: filepath.Join(conf.Data, "spool"), MaxBytes: int64(conf.Server.SpoolMaxBytes)})
}

func newSending(conf config.Config, queue *spool.Spool, to push.Server, done func(), counts *tally.Table, tell telling, log *slog.Logger) *sending {
	p := push.New(push.Options{
		Server: to, Spool: queue, Tally: counts, Machine: conf.Machine, Version: readBuild().Version,
		Heartbeat: conf.Server.Heartbeat, Running: tell.running, Pulling: tell.pulling, Host: tell.host, Scrape: tell.scrape,
	}, log)
	return &sending{Pusher: p, spool: queue, close: done}
}

// before returns records that are put into the spool first.
func (s *sending) before(next push.Records) push.Records {
	if s == nil {
		return next
	}
	return s.Pusher.Before(next)
}

// run sends until ctx ends.
func (s *sending) run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	return s.Pusher.Run(ctx)
}

// ready returns why the server takes nothing.
func (s *sending) ready() error {
	if s == nil {
		return nil
	}
	return s.Pusher.Ready()
}

// Close releases the spool.
func (s *sending) Close() {
	if s == nil {
		return
	}
	s.close()
	s.spool.Close()
}
