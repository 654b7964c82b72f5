package main

// The long texts of --help. Each sub-command ends with examples and exit codes.

const description = `cimeter tells what every build of a CI fleet cost, stage by stage, in CPU, memory, disk and network.

Exit codes: 0 done; 1 failed, or check found something wrong; 2 the command line was wrong. "cimeter run" exits as the command it ran.`
