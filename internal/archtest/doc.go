// Package archtest holds the architecture: which package may import which, what
// pure packages do without, what of Docker is called, what is in the binary.
//
// It owns the table of layers (layers_test.go) and nothing that runs in the
// program; no package imports it. A new package needs a row there. Start with
// TestLayers.
package archtest
