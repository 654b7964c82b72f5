// The number of CPUs that Go uses is that at the start: to ask for it again once a second
// wakes a thread and reads two files.

//go:debug updatemaxprocs=0

package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
