// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports of FreePort. They are below the range that Linux uses for outgoing connections, because
// such a connection could take the port of a server that is about to listen.
const (
	firstPort = 20_000
	lastPort  = 30_000
	portTries = 100
)

var errNoPort = errors.New("no loopback port is free")

// FreePort returns a free loopback port that other processes rarely choose.
func FreePort() (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp", localAddress(port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errNoPort
}

// FreeAddr returns a loopback address with a FreePort.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	port, err := FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	return localAddress(port)
}

func localAddress(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
