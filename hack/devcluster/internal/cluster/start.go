// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/host"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/process"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/render"
)

const (
	startTimeout = 3 * time.Minute // for one component to become healthy
	pollEvery    = 100 * time.Millisecond
	saysEvery    = 10 * time.Second // interval of progress messages during a wait
	logTail      = 2000             // bytes of a log that an error shows
	stopGrace    = 10 * time.Second // between SIGTERM and SIGKILL
	// stopGraceAPI is short: within it kube-apiserver leaves its Service, but it
	// then waits a minute for clients to end their watches, which they do not.
	stopGraceAPI = 2 * time.Second
)

// startAll starts everything in order. It starts the components after kube-apiserver at once and waits for all of them
// together.
func (l *local) startAll(ctx context.Context, pause string) error {
	components := render.Components(l.Dir)
	first, rest := components[:3], components[3:]
	err := l.Log.Step("starting etcd, containerd and kube-apiserver", func() error {
		for _, c := range first {
			if err := l.startComponent(ctx, c); err != nil {
				return err
			}
		}
		return errors.Join(l.loadPause(ctx, pause), l.bootstrap(ctx))
	})
	if err != nil {
		return err
	}
	return l.Log.Step("starting the node", func() error {
		for _, c := range rest {
			if err := l.launchComponent(c); err != nil {
				return err
			}
		}
		for _, c := range rest {
			if err := l.healthyNow(ctx, c.Name); err != nil {
				return err
			}
		}
		err := l.awaitCondition(ctx, "the node to be ready", layout.Kubelet, func() error { return l.nodeReady(ctx) })
		if err != nil {
			return err
		}
		return l.awaitCondition(ctx, "the first service account", layout.ControllerManager, func() error { return l.admitsPods(ctx) })
	})
}

func (l *local) component(name string) (render.Component, error) {
	var names []string
	for _, c := range render.Components(l.Dir) {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return render.Component{}, fmt.Errorf("there is no component %q; there are %s", name, strings.Join(names, ", "))
}

// findProcess returns the component's process, nil if it does not run.
func (l *local) findProcess(name string) (*process.Handle, error) {
	return process.Find(l.Dir.PID(name))
}

// startComponent launches a component and waits until it is healthy.
func (l *local) startComponent(ctx context.Context, c render.Component) error {
	if err := l.launchComponent(c); err != nil {
		return err
	}
	return l.healthyNow(ctx, c.Name)
}

// waitUntilFree returns once no process listens at an address. A killed process may keep its port for a moment on a busy machine.
func waitUntilFree(address string) error {
	for deadline := time.Now().Add(stopGrace); ; time.Sleep(pollEvery) {
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return listener.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// launchComponent starts a component that does not run.
func (l *local) launchComponent(c render.Component) error {
	h, err := l.findProcess(c.Name)
	if err != nil || h != nil {
		return err
	}
	for _, address := range c.Listen {
		if err := waitUntilFree(address); err != nil {
			return fmt.Errorf("%s needs %s, and something else listens there: %w", c.Name, address, err)
		}
	}
	_, err = process.Start(process.Spec{
		Path: l.Dir.Bin(c.Bin), Args: c.Args, Log: l.Dir.Log(c.Name), PID: l.Dir.PID(c.Name),
		// The process gets no other environment variables, because they may contain secrets and the process outlives its shell.
		Env: []string{"PATH=" + l.Dir.Path("bin") + ":" + host.Path(), "HOME=" + string(l.Dir), "LANG=C"},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", c.Name, err)
	}
	return nil
}

func (l *local) stopComponent(ctx context.Context, name string) error {
	h, err := l.findProcess(name)
	if err != nil || h == nil {
		return err
	}
	grace := stopGrace
	if name == layout.APIServer {
		grace = stopGraceAPI
	}
	if err := h.Stop(ctx, grace); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	return nil
}

// restart restarts the named components that are running. Without kube-apiserver, controllers retry only once a minute. In a
// cluster with leader election, controllers exit when they lose the lease, and start again. The controllers here have no leader
// election, so restart starts them again without that delay.
func (l *local) restart(ctx context.Context, names ...string) error {
	for _, name := range names {
		component, err := l.component(name)
		if err != nil {
			return err
		}
		running, err := l.findProcess(name)
		if err != nil {
			return err
		}
		if running == nil {
			continue
		}
		if err := errors.Join(l.stopComponent(ctx, name), l.startComponent(ctx, component)); err != nil {
			return err
		}
	}
	return nil
}

func (l *local) healthyNow(ctx context.Context, name string) error {
	return l.awaitCondition(ctx, name+" to be healthy", name, func() error { return l.probeComponent(ctx, name) })
}

// awaitCondition polls until probe succeeds, the component has exited or the timeout expires. It logs the condition that it waits for.
func (l *local) awaitCondition(ctx context.Context, what, component string, probe func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	poll, says := time.NewTicker(pollEvery), time.NewTicker(saysEvery)
	defer poll.Stop()
	defer says.Stop()
	for {
		err := probe()
		if err == nil {
			return nil
		}
		if h, findErr := l.findProcess(component); findErr != nil || h == nil {
			return fmt.Errorf("waiting for %s: %s ended; the end of %s:\n%s",
				what, component, l.Dir.Log(component), readLogTail(l.Dir.Log(component)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; it last said: %w; see %s", what, ctx.Err(), err, l.Dir.Log(component))
		case <-says.C:
			l.Log.Say("    waiting for %s: %v", what, err)
		case <-poll.C:
		}
	}
}

// readLogTail is the end of a log, or why there is none.
func readLogTail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-logTail):])
}
