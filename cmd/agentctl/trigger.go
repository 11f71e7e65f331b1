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
)

const (
	// maxTrigger is the most bytes that a webhook takes.
	maxTrigger = 16 << 20
	// triggerTimeout is longer than any sync webhook waits.
	triggerTimeout = 16 * time.Minute
	// triggerPoll is how often it is asked whether a run has ended.
	triggerPoll = 2 * time.Second
	// headerSecret is where a webhook takes its secret.
	headerSecret = "X-Service-Secret"
)

// envSecret is the environment variable with the secret of a webhook. There is no such flag:
// others on a machine may see flags.
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
API. Add --url to reach the webhook at another URL, such as that of a forwarded port.
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
			return o.run(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	o.bind(flags)
	flags.StringVar(&o.connector, "connector", "", "name or id of the connector, or for a connector of the repository the name of its file without .yaml")
	bindWithin(flags, &o.environment)
	flags.StringVar(&o.url, "url", "", "URL of the webhook; overrides the URL of --connector")
	flags.StringVar(&o.gateway, "gateway-url", "",
		"URL at which this machine reaches the gateway, such as http://127.0.0.1:18080 for a forwarded port; replaces the host in the URL of the connector")
	flags.StringVar(&o.secretFile, "secret-file", "", "file with the secret of the webhook; default: the environment variable "+envSecret+", then the secret of --connector")
	flags.StringVar(&o.idempotencyKey, "idempotency-key", "", "key of the event: the webhook accepts an event once under the same key")
	flags.BoolVar(&o.sync, "sync", false, "wait until the agents have finished")
	return cmd
}

// triggered is what a webhook answers.
type triggered struct {
	Status string   `json:"status"`
	RunIDs []string `json:"run_ids"`
	Result *struct {
		Status string `json:"status"`
	} `json:"result"`
}

func (o *triggerOptions) run(ctx context.Context, file string, stdin io.Reader, out io.Writer) error {
	if o.connector == "" && o.url == "" {
		return errors.New("--connector or --url is needed")
	}
	contentType, body, err := triggerBody(file, stdin)
	if err != nil {
		return err
	}
	api, secret, err := o.target(ctx)
	if err != nil {
		return err
	}
	answer, err := o.send(ctx, secret, contentType, body, out)
	if err != nil || !o.sync {
		return err
	}
	switch {
	case answer.Result != nil && answer.Status != "ok":
		return fmt.Errorf("the run has ended %s", answer.Result.Status)
	case answer.Result != nil:
		return nil
	case api == nil:
		return errors.New("the webhook answers at once; to wait for its runs --connector is needed")
	}
	return o.await(ctx, api, answer.RunIDs, out)
}

// triggerBody is a file as a webhook takes it.
func triggerBody(file string, stdin io.Reader) (contentType string, body []byte, err error) {
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
		return "", nil, fmt.Errorf("%s has more than the %d MiB that a webhook takes", name, maxTrigger>>20)
	}
	return contentType, body, nil
}

// target finds the URL and the secret; api is nil where the REST API is not asked.
func (o *triggerOptions) target(ctx context.Context) (api *rest, secret string, err error) {
	secret = o.getenv(envSecret)
	if o.secretFile != "" {
		text, err := os.ReadFile(o.secretFile)
		if err != nil {
			return nil, "", fmt.Errorf("reading the secret: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	if o.connector != "" {
		if api, err = o.client(); err != nil {
			return nil, "", err
		}
		id, err := api.connectorID(ctx, "--connector", o.environment, o.connector)
		if err != nil {
			return nil, "", err
		}
		var conn struct {
			Mode   string `json:"mode"`
			URL    string `json:"webhook_url"`
			Secret string `json:"secret"`
		}
		if err := api.call(ctx, http.MethodGet, "/connectors/"+id, "", nil, &conn); err != nil {
			return nil, "", fmt.Errorf("reading the connector: %w", err)
		}
		if conn.URL == "" {
			return nil, "", fmt.Errorf("the connector has no URL: its mode is %s", conn.Mode)
		}
		if o.url == "" {
			if o.url, err = o.reached(conn.URL); err != nil {
				return nil, "", err
			}
		}
		if secret == "" && conn.Secret != "********" {
			secret = conn.Secret
		}
	}
	to, err := url.Parse(o.url)
	switch {
	case err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http":
		return nil, "", errors.New("--url: must be the URL of a webhook")
	case to.Scheme == "http" && secret != "" && !o.plainHTTP && !isLoopback(to.Hostname()):
		host := to.Host
		to.Host = "127.0.0.1:18080"
		return nil, "", fmt.Errorf("the secret of the webhook would cross the network in clear to %s; use https, or forward a port: "+
			"%s, and add --url %s (the secret stays that of --secret-file, of %s, or else of --connector); "+
			"in a network that you trust --plain-http allows it", host, forwardGateway, printable(to.String()), envSecret)
	}
	return api, secret, nil
}

// forwardGateway makes the webhooks ones of this machine.
const forwardGateway = "kubectl -n agentplatform-system port-forward service/agentplatform-gateway 18080:80"

// reached returns the URL of a webhook as this machine reaches it: that of the connector, unless --gateway-url
// names another way to the gateway.
func (o *triggerOptions) reached(webhook string) (string, error) {
	if o.gateway == "" {
		return webhook, nil
	}
	to, err := url.Parse(webhook)
	if err != nil {
		return "", errors.New("the connector's URL is none")
	}
	by, err := url.Parse(o.gateway)
	if err != nil || by.Host == "" || by.Scheme != "https" && by.Scheme != "http" {
		return "", errors.New("--gateway-url: must be a URL such as http://127.0.0.1:18080")
	}
	to.Scheme, to.Host = by.Scheme, by.Host
	return to.String(), nil
}

// send makes the request and prints its answer.
func (o *triggerOptions) send(ctx context.Context, secret, contentType string, body []byte, out io.Writer) (answer triggered, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("making a request: %w", err)
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
		return answer, fmt.Errorf("calling the webhook, at an address that --gateway-url may change; with --idempotency-key %s it is the same event: %w",
			key, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRESTAnswer))
	if err != nil {
		return answer, fmt.Errorf("reading the answer of the webhook; with --idempotency-key %s it is the same event: %w", key, err)
	}
	fmt.Fprintln(out, jsonLine(text))
	if response.StatusCode/100 != 2 {
		return answer, refused(response.StatusCode, text, secret)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, notOurs(response.StatusCode)
	}
	return answer, nil
}

func notOurs(status int) error {
	return fmt.Errorf("%d: this is no answer of a webhook of the platform; is the URL right?", status)
}

// refused is what a webhook says that takes nothing, with the remedy where the command has one.
func refused(status int, text []byte, secret string) error {
	var problem restError
	if json.Unmarshal(text, &problem) != nil || problem.Code == "" {
		return notOurs(status)
	}
	err := fmt.Errorf("%d %s: %s", status, printable(string(problem.Code)), printableLines(problem.Detail))
	switch {
	case problem.Code != httpserver.CodeInvalidSecret:
		return err
	case secret == "":
		return fmt.Errorf("%w; no secret was sent: give it by --secret-file or %s, or name the webhook's connector by --connector", err, envSecret)
	}
	return fmt.Errorf("%w; the secret that was sent is not the webhook's: that of --secret-file, of %s, or else of --connector", err, envSecret)
}

// await prints runs once they have ended.
func (o *triggerOptions) await(ctx context.Context, api *rest, ids []string, out io.Writer) error {
	var failed []error
	for _, id := range ids {
		run, status, err := o.ended(ctx, api, id)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, jsonLine(run))
		if status != "completed" {
			failed = append(failed, fmt.Errorf("run %s has ended %s", id, status))
		}
	}
	return errors.Join(failed...)
}

// ended is a run once it has ended.
func (o *triggerOptions) ended(ctx context.Context, api *rest, id string) (shown json.RawMessage, status string, err error) {
	for {
		if err := api.call(ctx, http.MethodGet, "/runs/"+id, "", nil, &shown); err != nil {
			return nil, "", fmt.Errorf("reading run %s: %w", id, err)
		}
		var run struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(shown, &run); err != nil {
			return nil, "", fmt.Errorf("reading run %s: %w", id, err)
		}
		switch run.Status {
		case "completed", "failed", "cancelled":
			return shown, run.Status, nil
		}
		if err := o.wait(ctx, triggerPoll); err != nil {
			return nil, "", fmt.Errorf("run %s goes on: %w", id, err)
		}
	}
}
