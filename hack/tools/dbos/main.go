// SPDX-License-Identifier: Apache-2.0

// Command dbos is a yardstick of test/bench: queued workflows of three steps in DBOS Transact, which records the result of each step
// in PostgreSQL before the next step begins. A step returns a text of 200 bytes. It sends a POST to the URL first, unless that is "".
//
//	dbos DSN runs slots URL
//
// It queues the workflows and prints "queued". After a line on its standard input it executes them and prints the seconds until the
// last one was recorded as ended, and the processor time in milliseconds. The module is separate, so that the platform does not depend
// on DBOS.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"
)

const (
	queueName    = "bench"
	workflowName = "three"
	steps        = 3
	// pollInterval is the interval of the queries for queued workflows. DBOS starts at most as many workflows in an interval as it has
	// slots, so the default of a second would limit the rate to the number of slots.
	pollInterval = 10 * time.Millisecond
	// callers is the number of workflows that are queued at the same time.
	callers = 32
	// endInterval is the interval of the queries for workflows that have not ended, after the last one returned.
	endInterval = 2 * time.Millisecond
)

// input is 1 KiB of JSON, output 200 bytes, as in the benchmark of the platform.
var (
	input  = `{"text":"` + strings.Repeat("x", 1013) + `"}`
	output = strings.Repeat("y", 200)
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: dbos DSN runs slots URL")
	}
	runs, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	slots, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	if err := runWorkflows(os.Args[1], runs, slots, os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

// runWorkflows queues the workflows, waits for the line, and executes them.
func runWorkflows(dsn string, runs, slots int, url string) error {
	quiet := slog.New(slog.DiscardHandler)
	engine, err := dbos.NewContext(context.Background(), dbos.Config{
		DatabaseURL: dsn, AppName: queueName, ApplicationVersion: "1", Logger: quiet,
	})
	if err != nil {
		return err
	}
	left, over := atomic.Int64{}, make(chan struct{})
	left.Store(int64(runs))
	dbos.RegisterWorkflow(engine, func(run dbos.Context, _ string) (string, error) {
		defer func() {
			if left.Add(-1) == 0 {
				close(over)
			}
		}()
		return threeSteps(run, url)
	}, dbos.WithWorkflowName(workflowName))
	if _, err := dbos.RegisterQueue(engine, queueName, dbos.WithWorkerConcurrency(slots), dbos.WithQueueBasePollingInterval(pollInterval)); err != nil {
		return err
	}
	if err := queueWorkflows(dsn, runs, quiet); err != nil {
		return fmt.Errorf("queueing workflows: %w", err)
	}
	fmt.Println("queued")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	before, begun := processorTime(), time.Now()
	if err := dbos.Launch(engine); err != nil {
		return err
	}
	<-over
	if err := awaitEnds(engine); err != nil {
		return err
	}
	took, spent := time.Since(begun), processorTime()-before
	fmt.Printf("%.6f %.3f\n", took.Seconds(), float64(spent.Microseconds())/1000)
	return nil
}

// threeSteps is the workflow.
func threeSteps(run dbos.Context, url string) (text string, err error) {
	for range steps {
		text, err = dbos.RunAsStep(run, func(ctx context.Context) (string, error) {
			if url == "" {
				return output, nil
			}
			return output, sendPost(ctx, url)
		})
		if err != nil {
			return "", err
		}
	}
	return text, nil
}

// client keeps a connection for each slot.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}

func sendPost(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// queueWorkflows queues the workflows with a client of its own.
func queueWorkflows(dsn string, runs int, quiet *slog.Logger) error {
	client, err := dbos.NewClient(context.Background(), dbos.ClientConfig{DatabaseURL: dsn, AppName: queueName, Logger: quiet})
	if err != nil {
		return err
	}
	defer dbos.Shutdown(client, time.Second)
	var group errgroup.Group
	group.SetLimit(callers)
	for range runs {
		group.Go(func() error {
			_, err := dbos.Enqueue[string](client, queueName, workflowName, input)
			return err
		})
	}
	return group.Wait()
}

// awaitEnds returns when DBOS has recorded the end of all workflows. It fails if one of them failed.
func awaitEnds(engine dbos.Context) error {
	for {
		open, err := dbos.ListWorkflows(engine, dbos.WithFilterStatus(dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusPending), dbos.WithFilterLimit(1))
		if err != nil {
			return err
		}
		if len(open) == 0 {
			break
		}
		time.Sleep(endInterval)
	}
	failed, err := dbos.ListWorkflows(engine, dbos.WithFilterStatus(dbos.WorkflowStatusError), dbos.WithFilterLimit(1))
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("workflow %s failed: %w", failed[0].ID, failed[0].Error)
	}
	return err
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
