// SPDX-License-Identifier: Apache-2.0

// Command otelcollector is an OpenTelemetry collector with the receiver otlp over HTTP. It prints its address, and then each
// received batch of traces as a line of OTLP JSON, until its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	if err := serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// serve runs the collector until in ends.
func serve(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	// The configuration is the one of a user's file.
	if err := confmap.NewFromStringMap(map[string]any{
		"protocols": map[string]any{"http": map[string]any{"endpoint": address}},
	}).Unmarshal(config); err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	writer, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error { return writeTraces(out, traces) })
	if err != nil {
		return err
	}
	received, err := factory.CreateTraces(ctx, receiver.Settings{
		ID: component.NewID(factory.Type()), TelemetrySettings: componenttest.NewNopTelemetrySettings(),
	}, config, writer)
	if err != nil {
		return fmt.Errorf("creating the receiver: %w", err)
	}
	if err := received.Start(ctx, componenttest.NewNopHost()); err != nil {
		return fmt.Errorf("starting the receiver: %w", err)
	}
	defer func() { _ = received.Shutdown(ctx) }() // the process ends
	if _, err := fmt.Fprintln(out, address); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// freeAddress returns an address of this machine with a free port. The receiver does not report the port that it chose.
func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer func() { _ = listener.Close() }() // it has accepted no connection
	return listener.Addr().String(), nil
}

// writeTraces writes a batch as a line of JSON.
func writeTraces(out io.Writer, traces ptrace.Traces) error {
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return fmt.Errorf("writing traces as JSON: %w", err)
	}
	_, err = out.Write(append(line, '\n'))
	return err
}
