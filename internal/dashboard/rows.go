package dashboard

import (
	"fmt"

	"github.com/cimeter/cimeter/internal/catalog"
)

// chosen matches what the viewer chose, of metrics with a project and a machine.
const chosen = `{job="$job", project=~"$project", machine=~"$machine"}`

// with adds matchers to chosen.
func with(more string) string { return chosen[:len(chosen)-1] + ", " + more + "}" }

const ofJob = `{job="$job"}`

// rows are the dashboard, from the whole fleet down to one stage.
func rows() []Row {
	rate := func(by, metric, match string) string {
		return fmt.Sprintf("sum by (%s) (rate(%s%s[$__rate_interval]))", by, metric, match)
	}
	quantile := func(q, by, metric, match, over string) string {
		return fmt.Sprintf("histogram_quantile(%s, sum by (%s, le) (rate(%s_bucket%s[%s])))", q, by, metric, match, over)
	}
	return []Row{
		{"Fleet", []Panel{
			{Title: "Agents", Metric: catalog.ServerAgents, Kind: "stat", Width: 4, Lines: []Line{{"sum(" + catalog.ServerAgents + ")", ""}}},
			{Title: "Builds running", Metric: catalog.BuildsRunning, Kind: "stat", Width: 4, Lines: []Line{{"sum(" + catalog.BuildsRunning + chosen + ") or sum(" + catalog.ServerRunning + ofJob + ")", ""}}},
			{Title: "Coverage, worst machine", Metric: catalog.AgentCoverage, Kind: "stat", Width: 4, Lines: []Line{{"min(" + catalog.AgentCoverage + ")", ""}}},
			{Title: "Builds that ended", Metric: catalog.Builds, Stack: true, Lines: []Line{{fmt.Sprintf("sum by (result) (increase(%s%s[$__rate_interval]))", catalog.Builds, chosen), "{{result}}"}}},
			{Title: "CPU of the machines by owner", Metric: catalog.MachineCPU, Unit: "cores", Stack: true, Lines: []Line{{rate("owner", catalog.MachineCPU, `{job="$job", machine=~"$machine"}`), "{{owner}}"}}},
			{Title: "CPU of builds by machine", Metric: catalog.MachineCPU, Unit: "cores", Lines: []Line{{"topk(10, " + rate("machine", catalog.MachineCPU, `{job="$job", machine=~"$machine", owner="builds"}`) + ")", "{{machine}}"}}},
			{Title: "Waiting for a CPU, the stage that waits most", Metric: catalog.StagePressure, Unit: "percentunit", Lines: []Line{{fmt.Sprintf("topk(10, max by (machine) (rate(%s%s[$__rate_interval])))", catalog.StagePressure, with(`resource="cpu", kind="some"`)), "{{machine}}"}}},
			{Title: "Cost of cimeter itself", Metric: catalog.AgentCPU, Unit: "cores", Lines: []Line{{"max(rate(" + catalog.AgentCPU + "[$__rate_interval]))", "dearest agent"}, {"max(rate(" + catalog.ServerCPU + "[$__rate_interval]))", "server"}}},
		}},
		{"Queue", []Panel{
			{Title: "Builds of the CI servers", Metric: catalog.QueueBuilds, Stack: true, Lines: []Line{{"max by (server, status) (" + catalog.QueueBuilds + ")", "{{server}} {{status}}"}}},
			{Title: "Workers", Metric: catalog.Workers, Stack: true, Lines: []Line{{"max by (server, state) (" + catalog.Workers + ")", "{{server}} {{state}}"}}},
			{Title: "Wait for a runner", Metric: catalog.BuildQueue, Lines: []Line{
				{quantile("0.5", "job", catalog.BuildQueue, chosen, "30m"), "half of them wait less"}, {quantile("0.95", "job", catalog.BuildQueue, chosen, "30m"), "95 %"},
			}},
			{Title: "What builds that ended had waited for, builds at a time", Metric: catalog.QueueWaited, Unit: "short", Stack: true, Lines: []Line{{rate("reason", catalog.QueueWaited, ofJob), "{{reason}}"}}},
			{Title: "Wait for a worker, all builds of a CI server", Metric: catalog.JobQueue, Lines: []Line{
				{quantile("0.5", "server", catalog.JobQueue, ofJob, "30m"), "{{server}} half"}, {quantile("0.95", "server", catalog.JobQueue, ofJob, "30m"), "{{server}} 95 %"},
			}},
			{Title: "Ends of builds by result, metered or not", Metric: catalog.JobDuration, Unit: "short", Stack: true, Lines: []Line{{"sum by (result) (increase(" + catalog.JobDuration + "_count" + ofJob + "[$__rate_interval]))", "{{result}}"}}},
			{Title: "Age of what CI servers told", Metric: catalog.ServerSourceSuccess, Unit: "s", Lines: []Line{{"time() - max by (server) (" + catalog.ServerSourceSuccess + ofJob + ")", "{{server}}"}}},
			{Title: "Wait for a runner by project, 95 %", Metric: catalog.BuildQueue, Lines: []Line{{"topk(10, " + quantile("0.95", "project", catalog.BuildQueue, chosen, "30m") + ")", "{{project}}"}}},
		}},
		{"Projects", []Panel{
			{Title: "CPU by project", Metric: catalog.StageCPU, Unit: "cores", Stack: true, Lines: []Line{{"topk(10, " + rate("project", catalog.StageCPU, chosen) + ")", "{{project}}"}}},
			{Title: "Memory by project, without cache", Metric: catalog.StageMemoryWorkingSet, Stack: true, Lines: []Line{{"topk(10, sum by (project) (" + catalog.StageMemoryWorkingSet + chosen + "))", "{{project}}"}}},
			{Title: "Disk by project", Metric: catalog.StageIOBytes, Unit: "Bps", Lines: []Line{{"topk(10, " + rate("project, direction", catalog.StageIOBytes, chosen) + ")", "{{project}} {{direction}}"}}},
			{Title: "Network by project", Metric: catalog.StageNetwork, Unit: "Bps", Lines: []Line{{"topk(10, " + rate("project, direction", catalog.StageNetwork, chosen) + ")", "{{project}} {{direction}}"}}},
			{Title: "Duration of builds", Metric: catalog.BuildDuration, Lines: []Line{
				{quantile("0.5", "project", catalog.BuildDuration, chosen, "1h"), "{{project}} half"}, {quantile("0.95", "project", catalog.BuildDuration, chosen, "1h"), "{{project}} 95 %"},
			}},
			{Title: "Failed builds", Metric: catalog.Builds, Unit: "percentunit", Lines: []Line{{
				fmt.Sprintf("sum by (project) (increase(%s%s[1h])) / (sum by (project) (increase(%s%s[1h])) > 0)", catalog.Builds, with(`result="failed"`), catalog.Builds, chosen), "{{project}}"}}},
		}},
		{"Stages", []Panel{
			{Title: "CPU by stage", Metric: catalog.StageCPU, Unit: "cores", Stack: true, Lines: []Line{{rate("stage", catalog.StageCPU, chosen), "{{stage}}"}}},
			{Title: "Cores of a stage while it runs, 95 %", Metric: catalog.StageCPUCores, Unit: "cores", Lines: []Line{{quantile("0.95", "stage", catalog.StageCPUCores, chosen, "1h"), "{{stage}}"}}},
			{Title: "Duration of stages, 95 %", Metric: catalog.StageDuration, Lines: []Line{{quantile("0.95", "stage", catalog.StageDuration, chosen, "1h"), "{{stage}}"}}},
			{Title: "Peak of memory, 95 %", Metric: catalog.StageMemoryPeak, Lines: []Line{{quantile("0.95", "stage", catalog.StageMemoryPeak, chosen, "1h"), "{{stage}}"}}},
			{Title: "Held back by the CPU quota", Metric: catalog.StageCPUThrottled, Unit: "cores", Lines: []Line{{rate("stage", catalog.StageCPUThrottled, chosen), "{{stage}}"}}},
			{Title: "Waiting for memory and disk", Metric: catalog.StagePressure, Unit: "percentunit", Lines: []Line{{fmt.Sprintf("max by (stage, resource) (rate(%s%s[$__rate_interval]))", catalog.StagePressure, with(`resource=~"memory|io", kind="some"`)), "{{stage}} {{resource}}"}}},
			{Title: "Memory by kind", Metric: catalog.StageMemory, Stack: true, Lines: []Line{{"sum by (kind) (" + catalog.StageMemory + chosen + ")", "{{kind}}"}}},
			{Title: "Killed for memory", Metric: catalog.StageOOMKills, Lines: []Line{{fmt.Sprintf("sum by (project, stage) (increase(%s%s[$__rate_interval])) > 0", catalog.StageOOMKills, chosen), "{{project}} {{stage}}"}}},
		}},
	}
}
