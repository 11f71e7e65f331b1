// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/restclient"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

const (
	// maxTrigger is the size limit of a webhook request in bytes, maxWebhookResponse the size limit of a response.
	maxTrigger, maxWebhookResponse = 16 << 20, 8 << 20
	// triggerTimeout is longer than any sync webhook waits.
	triggerTimeout = 16 * time.Minute
	// triggerPoll is how often the command checks whether a run has ended.
	triggerPoll = 2 * time.Second
	// headerSecret is the header with the secret of a webhook.
	headerSecret = "X-Service-Secret"
)

// envSecret is the environment variable with the secret of a webhook. There is no such flag, because other users of a machine
// can read flags.
var envSecret = flagenv.Name("webhook-secret")

// triggerOptions are the flags of `trigger`.
type triggerOptions struct {
	restOptions

	connector, environment, url, gateway, secretFile, idempotencyKey string
	sync                                                             bool

	getenv func(string) string
	http   *http.Client
	wait   func(context.Context, time.Duration) error
}

func newTriggerCommand() *cobra.Command {
	o := &triggerOptions{getenv: os.Getenv, wait: pause.For, http: &http.Client{
		Timeout: triggerTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	cmd := &cobra.Command{
		Use:   "trigger FILE (--connector CONNECTOR [--url URL] | --url URL)",
		Short: "Send a file to a webhook",
		Long: `Send a file to the webhook of a connector, and print its answer.

The command sends a file with a JSON object as the body of the request, and any other
file as an attachment. FILE can be -, for standard input.

With --connector the command reads the URL and the secret of the webhook from the REST
API. Add --url to reach the webhook at another URL, such as the URL of a forwarded port.
With --url alone, put the secret in the file of --secret-file or in the environment
variable ` + envSecret + `. There is no flag for the secret,
because other users of this machine can read flags. A webhook that checks a provider's
signature cannot be called with a secret.

With --sync the command waits until the agents have finished. If the connector is not
a sync one, this needs --connector, to ask for the runs. Without --sync the command
returns as soon as the event is accepted.

A cron connector has no webhook: its schedule starts its runs.

The command fails if the webhook rejects the file, and with --sync if a run does not
complete.`,
		Example: `  agentctl trigger order.json --connector orders --environment production --sync
  AGENTPLATFORM_WEBHOOK_SECRET=$(cat secret) agentctl trigger damage.jpg --url "$url"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.triggerConnector(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.bindFlags(flags)
	flags.StringVar(&o.connector, "connector", "", "name or ID of the connector, or for a connector of the repository the name of its file without .yaml")
	bindLookup(flags, &o.environment)
	flags.StringVar(&o.url, "url", "", "URL of the webhook; overrides the URL of --connector")
	flags.StringVar(&o.gateway, "gateway-url", "",
		"URL at which this machine reaches the gateway, such as http://127.0.0.1:18080 for a forwarded port; replaces the host in the URL of the connector")
	flags.StringVar(&o.secretFile, "secret-file", "", "file with the secret of the webhook; default: the environment variable "+envSecret+", then the secret of --connector")
	flags.StringVar(&o.idempotencyKey, "idempotency-key", "", "key of the event: the webhook accepts an event once under the same key")
	flags.BoolVar(&o.sync, "sync", false, "wait until the agents have finished")
	return cmd
}

// webhookResponse is the response of a webhook. Result is nil if the webhook did not wait for its runs.
type webhookResponse struct {
	Status string             `json:"status"`
	RunIDs []string           `json:"run_ids"`
	Result *webhookapi.Result `json:"result"`
}

func (o *triggerOptions) triggerConnector(ctx context.Context, file string, stdin io.Reader, out io.Writer) error {
	if o.connector == "" && o.url == "" {
		return errors.New("give --connector or --url")
	}
	contentType, body, err := readTriggerBody(file, stdin)
	if err != nil {
		return err
	}
	api, secret, err := o.findTarget(ctx)
	if err != nil {
		return err
	}
	response, err := o.sendRequest(ctx, secret, contentType, body, out)
	if err != nil || !o.sync {
		return err
	}
	switch {
	case response.Result != nil && response.Status != "ok":
		return fmt.Errorf("the run has ended as %s", response.Result.Status)
	case response.Result != nil:
		return nil
	case api == nil:
		return errors.New("this webhook does not wait for its runs; give --connector to wait for them")
	}
	return o.awaitRuns(ctx, api, response.RunIDs, out)
}

// readTriggerBody returns the body of the request for a file, and its content type.
func readTriggerBody(file string, stdin io.Reader) (contentType string, body []byte, err error) {
	source, name := stdin, "stdin"
	if file != "-" {
		opened, err := os.Open(file) //nolint:gosec // the user names it
		if err != nil {
			return "", nil, fmt.Errorf("reading the file: %w", err)
		}
		defer opened.Close()
		source, name = opened, filepath.Base(file)
	}
	if body, err = io.ReadAll(io.LimitReader(source, maxTrigger+1)); err != nil {
		return "", nil, fmt.Errorf("reading the file: %w", err)
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) == nil && object != nil {
		contentType = "application/json"
	} else {
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		part, err := w.CreateFormFile("file", name)
		if err == nil {
			_, err = part.Write(body)
		}
		if err = errors.Join(err, w.Close()); err != nil {
			return "", nil, fmt.Errorf("making a form of the file: %w", err)
		}
		contentType, body = w.FormDataContentType(), form.Bytes()
	}
	if len(body) > maxTrigger {
		return "", nil, fmt.Errorf("%s is larger than the %d MiB that a webhook accepts", name, maxTrigger>>20)
	}
	return contentType, body, nil
}

// findTarget finds the URL and the secret. api is nil without --connector.
func (o *triggerOptions) findTarget(ctx context.Context) (api *apiClient, secret string, err error) {
	secret = o.getenv(envSecret)
	if o.secretFile != "" {
		text, err := os.ReadFile(o.secretFile)
		if err != nil {
			return nil, "", fmt.Errorf("reading the secret: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	if o.connector != "" {
		if api, err = o.newClient(); err != nil {
			return nil, "", err
		}
		shown, err := o.readConnector(ctx, api)
		if err != nil {
			return nil, "", err
		}
		if secret == "" {
			secret = shown
		}
	}
	to, err := url.Parse(o.url)
	switch {
	case err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http":
		return nil, "", errors.New("--url: must be the URL of a webhook")
	case to.Scheme == "http" && secret != "" && !o.plainHTTP && !isLoopback(to.Hostname()):
		host := to.Host
		to.Host = "127.0.0.1:18080"
		return nil, "", fmt.Errorf("the secret of the webhook would cross the network unencrypted to %s; use https, or forward a port: "+
			"%s, and add --url %s (the secret still comes from --secret-file, from %s, or else from --connector); "+
			"in a network that you trust --plain-http allows it", host, forwardGateway, printable(to.String()), envSecret)
	}
	return api, secret, nil
}

// readConnector sets the URL to the URL of the connector, unless --url is given. It returns the secret, "" if the key cannot see it.
func (o *triggerOptions) readConnector(ctx context.Context, api *apiClient) (secret string, err error) {
	id, err := api.findConnector(ctx, "--connector", o.environment, o.connector)
	if err != nil {
		return "", err
	}
	document, err := api.GetConnector(ctx, id)
	if err != nil {
		return "", fmt.Errorf("reading the connector: %w", err)
	}
	conn := document.Value
	webhook := restclient.ValueOf(conn.WebhookURL)
	switch {
	case conn.Type == restclient.ConnectorTypeCron:
		return "", errors.New("a cron connector has no webhook: its schedule starts its runs")
	case webhook == "":
		return "", fmt.Errorf("the connector has no webhook: its mode is %s", conn.Mode)
	}
	if o.url == "" {
		if o.url, err = o.gatewayURL(webhook); err != nil {
			return "", err
		}
	}
	if secret = restclient.ValueOf(conn.Secret); secret == masked {
		return "", nil
	}
	return secret, nil
}

// forwardGateway is the command that makes webhooks reachable at a port of this machine.
const forwardGateway = "kubectl -n agentplatform-system port-forward service/agentplatform-gateway 18080:80"

// gatewayURL returns the URL at which this machine reaches a webhook: the URL of the connector, unless --gateway-url is given.
func (o *triggerOptions) gatewayURL(webhook string) (string, error) {
	if o.gateway == "" {
		return webhook, nil
	}
	to, err := url.Parse(webhook)
	if err != nil {
		return "", errors.New("the URL of the connector is invalid")
	}
	by, err := url.Parse(o.gateway)
	if err != nil || by.Host == "" || by.Scheme != "https" && by.Scheme != "http" {
		return "", errors.New("--gateway-url: must be a URL such as http://127.0.0.1:18080")
	}
	to.Scheme, to.Host = by.Scheme, by.Host
	return to.String(), nil
}

// sendRequest sends the request and prints the response.
func (o *triggerOptions) sendRequest(ctx context.Context, secret, contentType string, body []byte, out io.Writer) (sent webhookResponse, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return sent, fmt.Errorf("making a request: %w", err)
	}
	key := o.idempotencyKey
	if key == "" {
		key = "agentctl-" + strings.ToLower(rand.Text())
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Idempotency-Key", key)
	if secret != "" {
		request.Header.Set(headerSecret, secret)
	}
	if !o.sync {
		request.Header.Set("Prefer", "respond-async")
	}
	response, err := o.http.Do(request)
	if err != nil {
		return sent, fmt.Errorf("calling the webhook (--gateway-url can change its address; --idempotency-key %s sends the same event again): %w",
			key, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxWebhookResponse))
	if err != nil {
		return sent, fmt.Errorf("reading the response of the webhook (--idempotency-key %s sends the same event again): %w", key, err)
	}
	fmt.Fprintln(out, jsonLine(text))
	if response.StatusCode/100 != 2 {
		return sent, webhookError(response.StatusCode, text, secret)
	}
	if err := json.Unmarshal(text, &sent); err != nil {
		return sent, foreignWebhook(response.StatusCode)
	}
	return sent, nil
}

func foreignWebhook(status int) error {
	return fmt.Errorf("%d: not a response of a webhook of the platform; check the URL", status)
}

// webhookError returns the problem that a webhook responded with, and the remedy if the command knows one.
func webhookError(status int, text []byte, secret string) error {
	var problem restclient.Problem
	if json.Unmarshal(text, &problem) != nil || problem.Code == "" {
		return foreignWebhook(status)
	}
	err := fmt.Errorf("%d %s: %s", status, printable(problem.Code), printableLines(problem.Detail))
	switch {
	case problem.Code != string(httpserver.CodeInvalidSecret):
		return err
	case secret == "":
		return fmt.Errorf("%w; no secret was sent: give it by --secret-file or %s, or name the connector of the webhook by --connector", err, envSecret)
	}
	return fmt.Errorf("%w; the webhook has another secret; the secret that was sent came from --secret-file, from %s, or else from --connector", err, envSecret)
}

// awaitRuns prints each run when it has ended.
func (o *triggerOptions) awaitRuns(ctx context.Context, api *apiClient, ids []string, out io.Writer) error {
	var failed []error
	for _, id := range ids {
		run, err := o.awaitRun(ctx, api, id)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, jsonLine(run.Text))
		if run.Value.Status != restclient.RunStatusCompleted {
			failed = append(failed, fmt.Errorf("run %s has ended as %s", id, run.Value.Status))
		}
	}
	return errors.Join(failed...)
}

// awaitRun returns a run when it has ended.
func (o *triggerOptions) awaitRun(ctx context.Context, api *apiClient, id string) (restclient.Document[restclient.Run], error) {
	for {
		run, err := api.GetRun(ctx, id)
		if err != nil {
			return run, fmt.Errorf("reading run %s: %w", id, err)
		}
		switch run.Value.Status {
		case restclient.RunStatusCompleted, restclient.RunStatusFailed, restclient.RunStatusCancelled:
			return run, nil
		}
		if err := o.wait(ctx, triggerPoll); err != nil {
			return run, fmt.Errorf("run %s continues: %w", id, err)
		}
	}
}
