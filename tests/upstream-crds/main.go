// Which CustomResourceDefinitions does upstream's Go module embed? Printed as YAML, one document each.
package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, crd := range apis.CRDs {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			fail(err)
		}
		// What only the API server writes.
		delete(object, "status")
		text, err := yaml.Marshal(object)
		if err != nil {
			fail(err)
		}
		fmt.Printf("---\n%s", text)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "upstream-crds:", err)
	os.Exit(1)
}
