package config

import "time"

// OTLP says how metrics and builds go to a receiver of the OpenTelemetry protocol.
type OTLP struct {
	URL       string            `yaml:"url" check:"address" doc:"Base address of the receiver, such as http://127.0.0.1:4318; v1/metrics and v1/traces are added. Without one nothing is sent."`
	Interval  time.Duration     `yaml:"interval" min:"1s" max:"10m" doc:"Time between two sends of all metrics."`
	Metrics   bool              `yaml:"metrics" doc:"Send the metrics."`
	Traces    bool              `yaml:"traces" doc:"Send each finished build as a trace."`
	Resource  map[string]string `yaml:"resource" doc:"Attributes of what sends, such as deployment.environment.name. service.name, service.instance.id and host.name have values that these win over."`
	Headers   map[string]string `yaml:"headers" doc:"Headers of each request. No place for a secret."`
	User      string            `yaml:"user" check:"label" doc:"User of basic authentication."`
	TokenFile string            `yaml:"token_file" check:"optionalpath" doc:"File of the bearer token, or of the password where user is set; $CIMETER_OTLP_TOKEN wins over it. It is read before each request. Must not be readable by everybody."`
	CAFile    string            `yaml:"ca_file" check:"optionalpath" doc:"PEM file of the authorities that may sign the receiver's certificate. Default: the system's."`
}

func defaultOTLP() OTLP { return OTLP{Interval: 30 * time.Second, Metrics: true} }
