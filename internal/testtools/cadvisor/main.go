// Command cadvisor is what cAdvisor is without its pages: its own packages, with
// the metrics and the interval that its program has by default.
//
//	cadvisor -listen 127.0.0.1:0 -docker unix:///run/docker.sock
//
// It writes the address that it serves /metrics at to standard output.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/cadvisor/cache/memory"
	"github.com/google/cadvisor/container"
	_ "github.com/google/cadvisor/container/docker/install"
	v2 "github.com/google/cadvisor/info/v2"
	"github.com/google/cadvisor/manager"
	"github.com/google/cadvisor/metrics"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of /metrics")
	flag.Parse() // cAdvisor's packages have flags of their own: -docker
	if err := run(*listen); err != nil {
		fmt.Fprintln(os.Stderr, "cadvisor:", err)
		os.Exit(1)
	}
}

// storage is how long cAdvisor keeps samples by default (its flag storage_duration).
const storage = 2 * time.Minute

func run(listen string) error {
	// As its flag disable_metrics has it by default.
	off := container.MetricSet{
		container.MemoryNumaMetrics: {}, container.NetworkTcpUsageMetrics: {}, container.NetworkUdpUsageMetrics: {},
		container.NetworkAdvancedTcpUsageMetrics: {}, container.ProcessSchedulerMetrics: {}, container.HugetlbUsageMetrics: {},
		container.ReferencedMemoryMetrics: {}, container.CPUTopologyMetrics: {}, container.ResctrlMetrics: {}, container.CPUSetMetrics: {},
	}
	included := container.AllMetrics.Difference(off)
	most, dynamic := time.Minute, true // max_housekeeping_interval, allow_dynamic_housekeeping
	m, err := manager.New(memory.New(storage, nil), sysfs.NewRealSysFs(),
		manager.HousekeepingConfig{Interval: &most, AllowDynamic: &dynamic}, included, http.DefaultClient, []string{"/"}, nil, "", 0)
	if err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.NewPrometheusCollector(m, nil, included, clock.RealClock{}, v2.RequestOptions{IdType: v2.TypeName, Count: 1, Recursive: true}))
	http.Handle("/metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, nil)
}
