// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/agentplatform/agentplatform/internal/keyring"
)

// platformIDEntry of the Secret holds the platform's id.
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
		Short: "The platform's own keys",
		Long: `The platform's own keys: those that webhook secrets derive from (derivation)
and those that stored credentials are sealed with (sealing). They lie in the
Secret ` + keyring.SecretName + ` of the system namespace; back it up before and
after each change.`,
	}
	flags := keys.PersistentFlags()
	o.bind(flags)
	flags.StringVarP(&o.namespace, "namespace", "n", "agentplatform-system", "the system namespace")
	keys.AddCommand(newKeysStatusCommand(o), newKeysRotateCommand(o), newKeysRevokeCommand(o))
	return keys
}

func newKeysStatusCommand(o *keysOptions) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the keys and what they wait for", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd.Context(), cmd.OutOrStdout()) },
	}
}

func newKeysRotateCommand(o *keysOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Add a new key to a ring, or to both",
		Long: `Add a new key to a ring, or to both.

The new key becomes current once every manager and facade holds it, about a
minute later. A new derivation key serves new connectors and new versions of
secrets; nobody's secret changes. What former sealing keys have sealed is
sealed anew in the background. The former keys stay in the ring.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.rotate(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().BoolVar(&o.derivation, "derivation", false, "the ring of derivation keys")
	cmd.Flags().BoolVar(&o.sealing, "sealing", false, "the ring of sealing keys")
	return cmd
}

func newKeysRevokeCommand(o *keysOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "Give up a key that has leaked or is lost",
		Long: `Give up a key that has leaked or is lost.

What hangs on a derivation key is derived anew with another one: every
connector of every project whose secret derives from it has a new secret. The
old ones stay valid for --within, so that callers can be told; with 0 they end
at once. What a sealing key has sealed in the store is sealed anew; headers and
secrets that the REST API was sent lie sealed in Connectors, and are to be sent to
it again. Once nothing in the store needs the key it leaves the ring. Where the
ring has no other key, one is added.

Run it again with another --within to change the period; it counts from the
first time.

With --lost the key need not be there, nor the Secret: a ring that is gone is
begun anew. What lost sealing keys have sealed cannot be opened any more.`,
		Example: `  agentctl keys revoke derivation-1a2b3c4d --within 168h`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.revoke(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&o.within, "within", 30*24*time.Hour, "how long old secrets stay valid, 0 to 8760h")
	cmd.Flags().BoolVar(&o.lost, "lost", false, "the key is lost; neither it nor the Secret need be there")
	cmd.Flags().StringVar(&o.platformID, "platform-id", "", "the platform's id, where the Secret is made anew; the manager's log names it")
	return cmd
}

// change reads the ring, lets it be changed, and writes it, unless somebody
// else changed it meanwhile.
func (o *keysOptions) change(ctx context.Context, change func(keyring.Ring) (keyring.Ring, error)) error {
	c, err := (&cluster{options: o.clusterOptions}).client()
	if err != nil {
		return err
	}
	secret, ring, err := o.read(ctx, c)
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
	for entry, content := range data {
		secret.Data[entry] = content
	}
	if secret.ResourceVersion == "" {
		err = c.Create(ctx, secret)
	} else {
		err = c.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s/%s (run the command again): %w", o.namespace, keyring.SecretName, err)
	}
	return nil
}

func (o *keysOptions) read(ctx context.Context, c client.Client) (*corev1.Secret, keyring.Ring, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: keyring.SecretName}, secret)
	if apierrors.IsNotFound(err) && o.lost {
		return o.anew()
	}
	if err != nil {
		return nil, keyring.Ring{}, fmt.Errorf("reading Secret %s/%s: %w", o.namespace, keyring.SecretName, err)
	}
	ring, err := keyring.Parse(secret.Data)
	if err != nil {
		return nil, keyring.Ring{}, fmt.Errorf("reading Secret %s/%s: %w", o.namespace, keyring.SecretName, err)
	}
	return secret, ring, nil
}

// anew is a Secret of new keys for the platform that there was.
func (o *keysOptions) anew() (*corev1.Secret, keyring.Ring, error) {
	id, err := uuid.Parse(o.platformID)
	if err != nil {
		return nil, keyring.Ring{}, errors.New("--platform-id is needed, for the Secret that held it is gone; it is what the manager was given, " +
			"or what its log names")
	}
	ring, err := keyring.New()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: keyring.SecretName},
		Data:       map[string][]byte{platformIDEntry: []byte(id.String())},
	}, ring, err
}

func (o *keysOptions) rotate(ctx context.Context, out io.Writer) error {
	var rings []string
	if o.derivation || !o.sealing {
		rings = append(rings, keyring.Derivation)
	}
	if o.sealing || !o.derivation {
		rings = append(rings, keyring.Sealing)
	}
	var added []string
	err := o.change(ctx, func(ring keyring.Ring) (keyring.Ring, error) {
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
Back up the Secret %s now: what the new key makes is lost without it.
It becomes current once every manager and facade holds it; see `+"`agentctl keys status`"+`.
`, strings.Join(added, " and "), keyring.SecretName)
	return err
}

func (o *keysOptions) revoke(ctx context.Context, id string, out io.Writer) error {
	name := keyring.RingOf(id)
	switch {
	case name == "":
		return fmt.Errorf("%q is no id of a key; `agentctl keys status` lists them", id)
	case o.within < 0 || o.within > keyring.MaxWithin:
		return fmt.Errorf("--within %s: must be 0 to %s", o.within, keyring.MaxWithin)
	}
	var added string
	err := o.change(ctx, func(ring keyring.Ring) (keyring.Ring, error) {
		if _, held := ring.Fingerprints()[id]; !held && !o.lost {
			return ring, fmt.Errorf("the ring does not hold %s; say --lost where it was lost", id)
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
		fmt.Fprintf(out, "Added %s to take its place. Back up the Secret %s now.\n", added, keyring.SecretName)
	}
	if name == keyring.Derivation {
		fmt.Fprintf(out, "Revoked %s: what derives from it is derived anew; the secrets before end after %s.\n", id, o.within)
	} else {
		fmt.Fprintf(out, "Revoked %s: what it has sealed in the store is sealed anew. Headers and secrets that the REST API was sent lie sealed in Connectors: send them to it again.\n", id)
	}
	_, err = fmt.Fprintln(out, "It leaves the ring once nothing needs it; see `agentctl keys status`.")
	return err
}

func (o *keysOptions) status(ctx context.Context, out io.Writer) error {
	c, err := (&cluster{options: o.clusterOptions}).client()
	if err != nil {
		return err
	}
	secret, ring, err := o.read(ctx, c)
	if err != nil {
		return err
	}
	states, err := keyring.ParseStatus(secret.Annotations[keyring.StatusAnnotation])
	if err != nil {
		return err
	}
	known := map[string]keyring.KeyStatus{}
	for _, state := range states {
		known[state.ID] = state
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tSTATE\tMESSAGE")
	for _, name := range []string{keyring.Derivation, keyring.Sealing} {
		for _, id := range ring.IDs(name) {
			state, ok := known[id]
			if _, revoked := ring.Revoked()[id]; revoked && state.State != keyring.StateRevoked {
				state, ok = keyring.KeyStatus{State: keyring.StateRevoked}, false
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", id, state.State, explainKey(state, ok))
		}
	}
	return table.Flush()
}

// explainKey says what a key waits for; known is false before the manager saw it.
func explainKey(state keyring.KeyStatus, known bool) string {
	switch {
	case !known:
		return "the manager has not seen this yet"
	case state.State == keyring.StateNew && len(state.Lacking) > 0:
		return "waits until these processes hold it: " + strings.Join(state.Lacking, ", ")
	case state.State == keyring.StateNew:
		return "becomes current within seconds"
	case state.State == keyring.StateRevoked:
		return fmt.Sprintf("%d connectors still need it; its secrets end at %s", state.Needed, state.EndsAt.Format(time.RFC3339))
	default:
		return ""
	}
}
