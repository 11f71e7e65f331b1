// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/secrets"
)

// platformIDEntry is the entry of the Secret with the ID of the platform.
const platformIDEntry = "platform-id"

// keysOptions are the flags of `keys`.
type keysOptions struct {
	clusterOptions
	derivation, sealing, lost bool
	within                    time.Duration
	platformID                string
}

func newKeysCommand() *cobra.Command {
	o := &keysOptions{}
	keys := &cobra.Command{
		Use:   "keys",
		Short: "Manage the keys of the platform",
		Long: `Manage the keys of the platform: derivation keys, from which webhook secrets derive, and
sealing keys, which encrypt stored credentials. They are in the Secret ` + secrets.SecretName + `
of the system namespace. Back up the Secret before and after each change.`,
	}
	flags := keys.PersistentFlags()
	o.bindFlags(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "agentplatform-system", "system namespace of the platform")
	keys.AddCommand(newKeysStatusCommand(o), newKeysRotateCommand(o), newKeysRevokeCommand(o))
	return keys
}

func newKeysStatusCommand(o *keysOptions) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the keys and their states", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.printStatus(cmd.Context(), cmd.OutOrStdout()) },
	}
}

func newKeysRotateCommand(o *keysOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Add a new key to a ring, or to both",
		Long: `Add a new key to a ring, or to both.

The new key becomes current when every manager and facade has it, after about a minute. New
connectors and new versions of secrets derive from a new derivation key; existing secrets do
not change. A new sealing key encrypts stored credentials again in the background. The
previous keys stay in the ring.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.addKeys(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().BoolVar(&o.derivation, "derivation", false, "add a key to the ring of derivation keys")
	cmd.Flags().BoolVar(&o.sealing, "sealing", false, "add a key to the ring of sealing keys")
	return cmd
}

func newKeysRevokeCommand(o *keysOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "Revoke a key that has leaked or is lost",
		Long: `Revoke a key that has leaked or is lost.

If you revoke a derivation key, every connector whose secret derives from it gets a new
secret from another key. The old secrets stay valid for --within, so that you can inform
the callers; 0 ends them at once. If you revoke a sealing key, the platform encrypts the
credentials in the store again. It cannot do so for headers and secrets that the REST API
sealed in Connectors: send them to the REST API again. The key leaves the ring when the
store no longer needs it. If the ring has no other key, the command adds one.

Run the command again with another --within to change the period, which counts from the
first run.

With --lost neither the key nor the Secret need exist: the command creates a missing ring
again. Credentials that a lost sealing key encrypted cannot be read any more.`,
		Example: `  agentctl keys revoke derivation-1a2b3c4d --within 168h`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.revokeKey(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&o.within, "within", 30*24*time.Hour, "how long the old secrets stay valid, 0 to 8760h")
	cmd.Flags().BoolVar(&o.lost, "lost", false, "the key is lost; neither the key nor the Secret need exist")
	cmd.Flags().StringVar(&o.platformID, "platform-id", "", "ID of the platform if the Secret is missing; the log of the manager has it")
	return cmd
}

// changeRing reads the ring, changes it, and writes it. It fails if the ring has changed meanwhile.
func (o *keysOptions) changeRing(ctx context.Context, change func(secrets.Ring) (secrets.Ring, error)) error {
	c, err := (&cluster{options: o.clusterOptions}).newClient()
	if err != nil {
		return err
	}
	secret, ring, err := o.readRing(ctx, c)
	if err != nil {
		return err
	}
	if ring, err = change(ring); err != nil {
		return err
	}
	data, err := ring.Data()
	if err != nil {
		return fmt.Errorf("writing the keys: %w", err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, data)
	if secret.ResourceVersion == "" {
		err = c.Create(ctx, secret)
	} else {
		err = c.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s (run the command again): %w", o.namespace, secrets.SecretName, err)
	}
	return nil
}

// readRing reads the Secret and its ring. With --lost it creates a missing Secret.
func (o *keysOptions) readRing(ctx context.Context, c client.Client) (*corev1.Secret, secrets.Ring, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: secrets.SecretName}, secret)
	if apierrors.IsNotFound(err) && o.lost {
		return o.newSecret()
	}
	if err != nil {
		return nil, secrets.Ring{}, fmt.Errorf("reading Secret %s/%s: %w", o.namespace, secrets.SecretName, err)
	}
	ring, err := secrets.ParseRing(secret.Data)
	if err != nil {
		return nil, secrets.Ring{}, fmt.Errorf("reading Secret %s/%s: %w", o.namespace, secrets.SecretName, err)
	}
	return secret, ring, nil
}

// newSecret returns a Secret with new keys for an existing platform.
func (o *keysOptions) newSecret() (*corev1.Secret, secrets.Ring, error) {
	id, err := uuid.Parse(o.platformID)
	if err != nil {
		return nil, secrets.Ring{}, errors.New("--platform-id: must be the ID of the platform, because the Secret with it is missing; " +
			"it is the value of the manager's flag, or in the log of the manager")
	}
	ring, err := secrets.NewRing()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: secrets.SecretName},
		Data:       map[string][]byte{platformIDEntry: []byte(id.String())},
	}, ring, err
}

func (o *keysOptions) addKeys(ctx context.Context, out io.Writer) error {
	var rings []string
	if o.derivation || !o.sealing {
		rings = append(rings, secrets.Derivation)
	}
	if o.sealing || !o.derivation {
		rings = append(rings, secrets.Sealing)
	}
	var added []string
	err := o.changeRing(ctx, func(ring secrets.Ring) (secrets.Ring, error) {
		for _, name := range rings {
			next, id, err := ring.WithNewKey(name)
			if err != nil {
				return ring, err
			}
			ring, added = next, append(added, id)
		}
		return ring, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `Added %s.
Back up the Secret %s now: without it, secrets and credentials of the new key are lost.
The key becomes current when every manager and facade has it; see `+"`agentctl keys status`"+`.
`, strings.Join(added, " and "), secrets.SecretName)
	return err
}

func (o *keysOptions) revokeKey(ctx context.Context, id string, out io.Writer) error {
	name := secrets.RingOf(id)
	switch {
	case name == "":
		return fmt.Errorf("KEY-ID: %q is not the ID of a key; `agentctl keys status` lists the IDs", id)
	case o.within < 0 || o.within > secrets.MaxRevocation:
		return fmt.Errorf("--within %s: must be 0 to %s", o.within, secrets.MaxRevocation)
	}
	var added string
	err := o.changeRing(ctx, func(ring secrets.Ring) (secrets.Ring, error) {
		if _, held := ring.Fingerprints()[id]; !held && !o.lost {
			return ring, fmt.Errorf("the ring does not have %s; if the key is lost, give --lost", id)
		}
		ring = ring.WithRevoked(id, o.within)
		revoked := ring.Revoked()
		good := slices.DeleteFunc(ring.IDs(name), func(id string) bool { _, ok := revoked[id]; return ok })
		if len(good) > 0 {
			return ring, nil
		}
		var err error
		ring, added, err = ring.WithNewKey(name)
		return ring, err
	})
	if err != nil {
		return err
	}
	if added != "" {
		fmt.Fprintf(out, "Added %s as its replacement. Back up the Secret %s now.\n", added, secrets.SecretName)
	}
	if name == secrets.Derivation {
		fmt.Fprintf(out, "Revoked %s: its connectors get new secrets; the old secrets end after %s.\n", id, o.within)
	} else {
		fmt.Fprintf(out, "Revoked %s: the credentials in the store are encrypted again. Headers and secrets in Connectors are not: send them to the REST API again.\n", id)
	}
	_, err = fmt.Fprintln(out, "The key leaves the ring when the store no longer needs it; see `agentctl keys status`.")
	return err
}

func (o *keysOptions) printStatus(ctx context.Context, out io.Writer) error {
	c, err := (&cluster{options: o.clusterOptions}).newClient()
	if err != nil {
		return err
	}
	secret, ring, err := o.readRing(ctx, c)
	if err != nil {
		return err
	}
	states, err := secrets.ParseKeyStatus(secret.Annotations[secrets.KeyStatusAnnotation])
	if err != nil {
		return err
	}
	known := map[string]secrets.KeyStatus{}
	for _, state := range states {
		known[state.ID] = state
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tSTATE\tMESSAGE")
	for _, name := range []string{secrets.Derivation, secrets.Sealing} {
		for _, id := range ring.IDs(name) {
			state, ok := known[id]
			if _, revoked := ring.Revoked()[id]; revoked && state.State != secrets.KeyRevoked {
				state, ok = secrets.KeyStatus{State: secrets.KeyRevoked}, false
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", id, state.State, explainKey(state, ok))
		}
	}
	return table.Flush()
}

// explainKey returns what a key waits for. known is false until the manager has seen the key.
func explainKey(state secrets.KeyStatus, known bool) string {
	switch {
	case !known:
		return "the manager has not seen the key yet"
	case state.State == secrets.KeyNew && len(state.Lacking) > 0:
		return "waits until these processes have it: " + strings.Join(state.Lacking, ", ")
	case state.State == secrets.KeyNew:
		return "becomes current within seconds"
	case state.State == secrets.KeyRevoked:
		return fmt.Sprintf("%d connectors still need it; its secrets end at %s", state.Needed, state.EndsAt.Format(time.RFC3339))
	default:
		return ""
	}
}
