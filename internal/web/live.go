package web

// maxStreams bounds the live streams: each holds a connection and a timer.
const maxStreams = 200
