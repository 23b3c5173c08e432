package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// Names says which nodes the extender under test knows.
type Names struct {
	Prefix string
	Known  int
}

// Request is one generated call.
type Request struct {
	Args    extenderv1.ExtenderArgs
	Variant string
}

// Hosts are the distinct names asked for.
func (r Request) Hosts() map[string]bool {
	hosts := map[string]bool{}
	if r.Args.Nodes != nil {
		for _, node := range r.Args.Nodes.Items {
			hosts[node.Name] = true
		}
		return hosts
	}
	if r.Args.NodeNames != nil {
		for _, name := range *r.Args.NodeNames {
			hosts[name] = true
		}
	}
	return hosts
}

// Named says whether the request names nodes at all, be it none.
func (r Request) Named() bool {
	return r.Args.Nodes != nil || (r.Args.NodeNames != nil && *r.Args.NodeNames != nil)
}

// SizeClass groups requests by how many hosts they name.
func (r Request) SizeClass() string {
	switch n := len(r.Hosts()); {
	case n == 0:
		return "0"
	case n == 1:
		return "1"
	case n <= 10:
		return "2-10"
	case n <= 100:
		return "11-100"
	default:
		return "101-1000"
	}
}

// Text that a careless encoder, decoder or log line trips over. All of it is valid UTF-8: Go's encoder lets nothing else through.
var hostile = []string{
	"", " ", "\"", "\\", "\\\"}]", "</script><b>&amp;", "\u2028\u2029", "\x00\x01\x1f", "\x7f", "ünïcödé", "节点-7", "🦀🦀", "e\u0301", "\ufeffbom", "\ufffd",
	"..", "-", "a=b,c", "%s%d%n", "{\"Host\":\"x\",\"Score\":10}", "null", "NaN", "1e309", "__proto__", "$(reboot)", "a\r\nX-Injected: 1", "‮gnirts",
	strings.Repeat("x", 253), strings.Repeat("ß", 2000),
}

var quantities = []string{
	"0", "1", "100m", "1500m", "1", "0.5", "2.5", "1e3", "1E", "128Mi", "1Gi", "1G", "64Ki", "1n", "3u", "-1", "-5Gi", "9223372036854775807", "99999999999999999999",
	"1.0000000001", "100E", "7Ei", "0.0000000001",
}

// Generate makes the next request.
func Generate(random *rand.Rand, names Names) Request {
	request := Request{Args: extenderv1.ExtenderArgs{Pod: pod(random)}, Variant: "names"}
	list := nodeNames(random, names)
	switch roll := random.IntN(1000); {
	case roll < 5:
		request.Variant = "no lists"
	case roll < 10:
		request.Variant, request.Args.Pod, request.Args.NodeNames = "no pod", nil, &list
	case roll < 15:
		request.Variant, request.Args.Pod, request.Args.NodeNames = "empty pod", &v1.Pod{}, &list
	case roll < 60:
		request.Variant = "nodes"
		if len(list) > 40 {
			list = list[:40]
		}
		nodes := &v1.NodeList{Items: []v1.Node{}}
		for _, name := range list {
			nodes.Items = append(nodes.Items, node(random, name))
		}
		request.Args.Nodes = nodes
	case roll < 70:
		request.Variant = "nil names"
		var none []string
		request.Args.NodeNames = &none // a pointer to a nil slice: encoded as null
	default:
		request.Args.NodeNames = &list
	}
	return request
}

func nodeNames(random *rand.Rand, names Names) []string {
	size := 0
	switch roll := random.IntN(100); {
	case roll < 65:
		size = random.IntN(21)
	case roll < 93:
		size = 20 + random.IntN(181)
	case roll < 99:
		size = 200 + random.IntN(301)
	default:
		size = 500 + random.IntN(501)
	}
	list := make([]string, 0, size+1)
	first := random.IntN(names.Known)
	for i := range size {
		list = append(list, fmt.Sprintf("%s%04d", names.Prefix, (first+i)%names.Known)) // a rotating window, as kube-scheduler samples
	}
	if size == 0 {
		return list
	}
	switch random.IntN(12) {
	case 0: // duplicates
		for range 1 + random.IntN(5) {
			list = append(list, list[random.IntN(len(list))])
		}
	case 1: // a node we have not seen yet
		list[random.IntN(len(list))] = fmt.Sprintf("new-%d", random.IntN(1_000_000))
	case 2: // nobody is known
		for i := range list {
			list[i] = fmt.Sprintf("elsewhere-%d", i)
		}
	case 3: // no node of Kubernetes may be called so
		list[random.IntN(len(list))] = hostile[random.IntN(len(hostile))]
	case 4:
		random.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	}
	return list
}

func pod(random *rand.Rand) *v1.Pod {
	namespaces := []string{"active", "active", "active", "active", "active", "shadow", "canary", "rules", "nobody", "kube-system", ""}
	schedulers := []string{"tiphys", "tiphys", "tiphys", "tiphys", "tiphys", "tiphys", "tiphys", "default-scheduler", ""}
	uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.IntN(1<<16), random.IntN(1<<12), random.IntN(1<<12), random.Uint64()>>16)
	made := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              pick(random, fmt.Sprintf("pod-%d", random.IntN(1_000_000))),
			Namespace:         namespaces[random.IntN(len(namespaces))],
			UID:               types.UID(pick(random, uid)),
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000+random.Int64N(100_000_000), 0)),
			Labels:            stringMap(random),
			Annotations:       stringMap(random),
		},
		Spec: v1.PodSpec{SchedulerName: schedulers[random.IntN(len(schedulers))]},
	}
	if made.Labels != nil && random.IntN(2) == 0 {
		made.Labels["tiphys.io/function"] = pick(random, fmt.Sprintf("function-%d", random.IntN(20)))
	}
	if random.IntN(3) == 0 {
		controller := random.IntN(2) == 0
		kinds := []string{"ReplicaSet", "DaemonSet", "Job", pick(random, "StatefulSet")}
		made.OwnerReferences = []metav1.OwnerReference{{Kind: kinds[random.IntN(len(kinds))], Name: pick(random, "owner"), Controller: &controller}}
	}
	for range random.IntN(4) {
		made.Spec.Containers = append(made.Spec.Containers, container(random))
	}
	if random.IntN(4) == 0 {
		always := v1.ContainerRestartPolicyAlways
		side := container(random)
		side.RestartPolicy = &always
		made.Spec.InitContainers = []v1.Container{container(random), side}
	}
	if random.IntN(6) == 0 {
		made.Spec.Overhead = resources(random)
	}
	if random.IntN(8) == 0 {
		made.Spec.NodeSelector = stringMap(random)
		made.Spec.Tolerations = []v1.Toleration{{Key: pick(random, "dedicated"), Operator: v1.TolerationOpExists}}
	}
	if random.IntN(10) == 0 {
		made.Status.Phase = v1.PodPhase(pick(random, "Pending"))
		made.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(random.Int64N(1<<33), 0))}}
	}
	return made
}

func container(random *rand.Rand) v1.Container {
	made := v1.Container{
		Name:      pick(random, "main"),
		Image:     pick(random, "registry.example/functions/resize:1.4"),
		Env:       []v1.EnvVar{{Name: "TOKEN", Value: pick(random, "not for any log")}},
		Resources: v1.ResourceRequirements{Requests: resources(random), Limits: resources(random)},
	}
	if random.IntN(5) == 0 {
		made.Args = append(made.Args, hostile[random.IntN(len(hostile))])
	}
	return made
}

func resources(random *rand.Rand) v1.ResourceList {
	if random.IntN(8) == 0 {
		return nil
	}
	list := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, "nvidia.com/gpu"} {
		if random.IntN(4) > 0 {
			list[name] = resource.MustParse(quantities[random.IntN(len(quantities))])
		}
	}
	return list
}

func node(random *rand.Rand, name string) v1.Node {
	return v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: stringMap(random)},
		Spec:       v1.NodeSpec{Unschedulable: random.IntN(10) == 0},
		Status:     v1.NodeStatus{Allocatable: resources(random), Capacity: resources(random)},
	}
}

func stringMap(random *rand.Rand) map[string]string {
	if random.IntN(5) == 0 {
		return nil
	}
	made := map[string]string{"app": pick(random, "demo")}
	for range random.IntN(4) {
		made[pick(random, fmt.Sprintf("key-%d", random.IntN(50)))] = pick(random, "value")
	}
	return made
}

// pick returns the usual text, and now and then a hostile one.
func pick(random *rand.Rand, usual string) string {
	if random.IntN(25) == 0 {
		return hostile[random.IntN(len(hostile))]
	}
	return usual
}
