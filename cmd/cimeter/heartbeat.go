package main

import (
	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/agent"
	"github.com/cimeter/cimeter/internal/wire"
)

// running is what a heartbeat tells of the builds that run.
func (m *metering) running() []wire.Running {
	var out []wire.Running
	for _, r := range m.agent.Running() {
		out = append(out, wire.Running{
			Key: r.Key, CI: r.CI, Server: r.Server, Project: r.Project, Number: r.Number, Name: r.Name, Attempt: r.Attempt, Pipeline: r.Pipeline, Runner: r.Runner, URL: r.URL,
			Stage: r.Stage, StartedAt: r.StartedAt, PulledAt: r.ImagePulledAt, CPUSeconds: r.Usage.CPUSeconds.Total, MemoryBytes: r.MemoryBytes,
			IOBytes: r.Usage.IOBytes, NetworkBytes: r.Usage.NetworkBytes, Limits: r.Limits,
		})
	}
	return out
}

// pulling is what a heartbeat tells of the jobs that wait for an image.
func (m *metering) pulling() (all []wire.Pulling) {
	for _, p := range m.agent.Pulling() {
		all = append(all, wire.Pulling{Key: p.Key, Since: p.Since})
	}
	return all
}

// host is what a heartbeat tells of the machine.
func (m *metering) host() *wire.Host { return hostOf(m.agent.Figures(), m.pool) }

func hostOf(f agent.Figures, pool string) *wire.Host {
	h := &wire.Host{
		OS: f.OS, Kernel: f.Kernel, Cgroup: f.Cgroup, Pool: pool, BootedAt: f.BootedAt, StartedAt: f.StartedAt, ReadAt: f.ReadAt,
		CPUCores: f.Cores, IOBytes: f.IO, NetworkBytes: f.Network, PressureSeconds: f.Pressure, Coverage: f.Coverage, Containers: f.Containers,
	}
	if f.CPU != nil {
		h.CPUSeconds = &wire.HostCPU{Builds: f.CPU.Builds, Other: f.CPU.Other, Cimeter: f.CPU.Cimeter}
	}
	if total, ok := f.MemoryTotal.Get(); ok {
		h.MemoryBytes = &wire.HostMemory{Total: total, Available: f.MemoryAvailable}
	}
	if f.OwnCPU.Known || f.OwnMemory.Known {
		h.Agent = &wire.HostAgent{CPUSeconds: f.OwnCPU, MemoryBytes: f.OwnMemory}
	}
	return h
}

// telling is what heartbeats tell beside the spool; each may be nil.
type telling struct {
	running func() []wire.Running
	pulling func() []wire.Pulling
	host    func() *wire.Host
	scrape  func() *wire.Scrape
}

// accounts are the accounts so far of the builds that run.
func (m *metering) accounts() []*cimeter.Record {
	var records []*cimeter.Record
	for _, r := range m.agent.Running() {
		records = append(records, r.Record)
	}
	return records
}
