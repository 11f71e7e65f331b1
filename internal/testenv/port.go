// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports that FreePort chooses from: below those that Linux gives to connections that go
// out, one of which would take a port from the process that is about to listen at it.
const (
	firstPort = 20_000
	lastPort  = 30_000
	portTries = 100
)

var errNoPort = errors.New("no loopback port is free")

// FreePort is a loopback port that is free now, and that hardly anybody else chooses.
func FreePort() (int, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp", addrOf(port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errNoPort
}

// FreeAddr is the loopback address with a FreePort.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	port, err := FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	return addrOf(port)
}

func addrOf(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
